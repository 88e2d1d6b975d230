"""Generalised advantages of a rollout whose environments reset on the call after an episode's end.

Time runs along the leading axis T; the axes behind it ([E] environments, [W, E], or none) are independent.
The row that follows an episode's last step holds the terminal observation, and the call made there resets
the environment: it is no transition (``valid`` is false), but its value is what a truncated step bootstraps from.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp


def generalized_advantages(
    reward: chex.Array,
    value: chex.Array,
    terminated: chex.Array,
    truncated: chex.Array,
    valid: chex.Array,
    gamma: chex.Numeric,
    lambda_: chex.Numeric,
) -> tuple[chex.Array, chex.Array]:
    """Exponentially weighted advantages, GAE(gamma, lambda).

    With delta_t = r_t + gamma V_{t+1} - V_t, the advantage is A_t = sum_l (gamma lambda)^l delta_{t+l} up to the end of
    the episode or of the rollout (Schulman et al. 2016, "High-dimensional continuous control using generalized
    advantage estimation", eq. 16), computed backwards as A_t = delta_t + gamma lambda A_{t+1}.

    A terminated step has no future: V_{t+1} counts as 0. A truncated one bootstraps from ``value[t + 1]``, the value
    of its terminal observation; if both flags are set the step is terminated. Either flag, and an invalid step, stop
    the recursion. What is stored at an invalid step (reward, flags) is never read and may be NaN; its
    value is read only by a step before it that did not terminate.

    Args:
        reward: [T, ...] float, reward of the step taken at t.
        value: [T + 1, ...] float, V of the observation acted on at t; the last row bootstraps the rollout's end.
        terminated: [T, ...] bool, the step at t ended its episode for good.
        truncated: [T, ...] bool, the step at t ended its episode by a time limit.
        valid: [T, ...] bool, false where the call at t was a reset and no transition.
        gamma: discount per step, in [0, 1].
        lambda_: trace decay, in [0, 1]: 0 is the one-step error, 1 the discounted return less the value.

    Returns:
        advantage [T, ...] and target [T, ...] = advantage + value, both in the unit of the reward, 0 where invalid.

    Raises:
        AssertionError: shapes or dtypes disagree.
    """
    chex.assert_equal_shape([reward, terminated, truncated, valid])
    chex.assert_shape(value, (reward.shape[0] + 1, *reward.shape[1:]))
    chex.assert_type([reward, value, terminated, truncated, valid], [float, float, bool, bool, bool])

    def backwards(next_advantage: chex.Array, step: tuple[chex.Array, ...]) -> tuple[chex.Array, chex.Array]:
        reward, value, next_value, terminated, truncated, valid = step
        bootstrap = jnp.where(terminated, 0.0, gamma * next_value)
        carried = jnp.where(terminated | truncated, 0.0, gamma * lambda_ * next_advantage)
        advantage = jnp.where(valid, reward + bootstrap - value + carried, 0.0)
        return advantage, advantage

    steps = (reward, value[:-1], value[1:], terminated, truncated, valid)
    _, advantage = jax.lax.scan(backwards, jnp.zeros_like(value[0]), steps, reverse=True)
    return advantage, jnp.where(valid, advantage + value[:-1], 0.0)


def masked_moments(x: chex.Array, mask: chex.Array) -> tuple[chex.Array, chex.Array, chex.Array]:
    """Count, sum and sum of squares of the entries where ``mask`` is true.

    Three float scalars, additive over batches: add those of several workers to standardise over all of them.

    Args:
        x: [...] float; masked entries may be NaN.
        mask: [...] bool.

    Returns:
        count, sum (unit of x) and sum of squares (unit of x squared), each of shape [].
    """
    chex.assert_equal_shape([x, mask])
    chex.assert_type([x, mask], [float, bool])
    x = jnp.where(mask, x, 0.0)
    return jnp.sum(mask, dtype=x.dtype), jnp.sum(x), jnp.sum(jnp.square(x))


def standardize(
    x: chex.Array, count: chex.Array, total: chex.Array, total_squares: chex.Array, epsilon: float = 1e-8
) -> chex.Array:
    """(x - mean) / (std + epsilon), with mean and (population) std from the three sums of ``masked_moments``.

    Args:
        x: [...] float.
        count, total, total_squares: scalars [], possibly summed over workers.
        epsilon: added to the standard deviation, in the unit of x.

    Returns:
        [...] float, without unit; 0 everywhere if count is 0 or 1 and x is the counted entry.
    """
    chex.assert_rank([count, total, total_squares], 0)
    count = jnp.maximum(count, 1.0)
    mean, mean_square = total / count, total_squares / count
    # The difference of two rounded numbers is noise below this floor. Equal advantages would otherwise be divided by
    # epsilon alone, and their rounding errors blown up to the size of a real signal.
    resolution = 4 * jnp.finfo(x.dtype).eps * mean_square
    variance = jnp.maximum(mean_square - jnp.square(mean), resolution)
    return (x - mean) / (jnp.sqrt(variance) + epsilon)


def normalize(advantage: chex.Array, mask: chex.Array, epsilon: float = 1e-8) -> chex.Array:
    """Advantages with mean 0 and standard deviation 1 over the entries where ``mask`` is true.

    To normalise over several workers, add their ``masked_moments`` and call ``standardize``.

    Args:
        advantage: [...] float; masked entries may be NaN.
        mask: [...] bool.
        epsilon: added to the standard deviation, in the unit of the advantage.

    Returns:
        [...] float, 0 where masked.
    """
    standard = standardize(jnp.where(mask, advantage, 0.0), *masked_moments(advantage, mask), epsilon=epsilon)
    return jnp.where(mask, standard, 0.0)
