"""V-trace: values and policy gradients for a policy that has moved on from the one that acted.

Espeholt et al. 2018, "IMPALA: Scalable distributed deep-RL with importance weighted actor-learner architectures",
section 4. Time runs along the leading axis, with the reset convention of `advantages`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import chex
import jax
import jax.numpy as jnp

from admm_jax.errors import at_least, finite
from admm_jax.rl import distributions
from admm_jax.rl.advantages import normalize
from admm_jax.rl.losses import LossMetrics, masked_mean, validate_weights


class Sequences(NamedTuple):
    """Whole rollouts of some environments, flat and time first: B = (T + 1) x E steps.

    The last row of each holds what is observed after the rollout, is not valid, and lends its value only.

    Attributes:
        observation: [B, *obs], as the network takes it.
        action: [B] integer. log_prob: [B] float, of that action under the policy that acted, nats.
        reward: [B] float.
        terminated, truncated, valid: [B] bool.
    """

    observation: chex.ArrayTree
    action: chex.Array
    log_prob: chex.Array
    reward: chex.Array
    terminated: chex.Array
    truncated: chex.Array
    valid: chex.Array


def vtrace(
    log_ratio: chex.Array,
    reward: chex.Array,
    value: chex.Array,
    terminated: chex.Array,
    truncated: chex.Array,
    valid: chex.Array,
    *,
    gamma: chex.Numeric,
    clip_rho: chex.Numeric,
    clip_c: chex.Numeric,
) -> tuple[chex.Array, chex.Array]:
    """Value targets v_t and advantages of the policy gradient.

        delta_t = rho_t (r_t + gamma V_{t+1} - V_t)                rho_t = min(clip_rho, pi / mu)
        v_t     = V_t + delta_t + gamma c_t (v_{t+1} - V_{t+1})      c_t = min(clip_c, pi / mu)       (equation 1)
        A_t     = rho_t (r_t + gamma v_{t+1} - V_t)                                                   (section 4.2)

    A terminated step has no future, a truncated one bootstraps from V_{t+1} alone. For a policy that has not moved, v
    is the return of n steps and A is GAE with lambda = 1.

    Args:
        log_ratio: [T, ...] float, log pi(a) - log mu(a), nats.
        reward: [T, ...] float.
        value: [T + 1, ...] float, V of the current network.
        terminated, truncated, valid: [T, ...] bool, as in `generalized_advantages`.
        gamma: discount per step, in [0, 1].
        clip_rho, clip_c: bounds of the weights, above 0.

    Returns:
        v and A, [T, ...], unit of the reward; V and 0 where invalid.

    Raises:
        AssertionError: shapes disagree.
    """
    chex.assert_equal_shape([log_ratio, reward, terminated, truncated, valid])
    chex.assert_shape(value, (reward.shape[0] + 1, *reward.shape[1:]))
    ratio = jnp.exp(jnp.where(valid, log_ratio, 0.0))
    rho, c = jnp.minimum(clip_rho, ratio), jnp.minimum(clip_c, ratio)
    follows = jnp.where(terminated, 0.0, gamma)
    delta = jnp.where(valid, rho * (reward + follows * value[1:] - value[:-1]), 0.0)
    carries = jnp.where(valid & ~(terminated | truncated), gamma * c, 0.0)

    def backwards(excess: chex.Array, step: tuple[chex.Array, ...]) -> tuple[chex.Array, chex.Array]:
        delta, carries = step
        excess = delta + carries * excess
        return excess, excess

    _, excess = jax.lax.scan(backwards, jnp.zeros_like(value[0]), (delta, carries), reverse=True)
    target = value[:-1] + excess
    following = jnp.concatenate([target[1:], value[-1:]])
    advantage = jnp.where(valid, rho * (reward + follows * following - value[:-1]), 0.0)
    return target, advantage


@dataclasses.dataclass(frozen=True)
class VTraceLoss:
    """Actor-critic with V-trace, anew at every optimiser step with the network as it is then.

    loss = -mean A_t log pi(a_t) + value_weight 1/2 mean (v_t - V_t)^2 - entropy_weight entropy; call it with
    (logits [B, A], value [B], `Sequences`).

    Args:
        length: T + 1, rows of a sequence.
        gamma: discount per step.
        clip_rho, clip_c: bounds of the importance weights, above 0.
        normalize: give each minibatch's advantages mean 0 and deviation 1 (not in the paper).
        value_weight: at least 0, per squared unit of reward.
        entropy_weight: at least 0, per nat.

    Raises:
        InvalidInput: at construction, if a setting is outside its range.
    """

    length: int
    gamma: float = 0.99
    clip_rho: float = 1.0
    clip_c: float = 1.0
    normalize: bool = False
    value_weight: float = 0.5
    entropy_weight: float = 0.01

    sequences: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least("length", self.length, 2)
        finite("gamma", self.gamma, low=0, high=1)
        finite("clip_rho", self.clip_rho, above=0)
        finite("clip_c", self.clip_c, above=0)
        validate_weights(self.value_weight, self.entropy_weight)

    def __call__(self, logits: chex.Array, value: chex.Array, batch: Sequences) -> tuple[chex.Array, LossMetrics]:
        valid = batch.valid
        # Whatever stands at invalid steps is replaced before it is used: the gradient of a masked NaN is NaN.
        logits = jnp.where(valid[:, None], logits, 0.0)
        log_prob = distributions.log_prob(logits, jnp.where(valid, batch.action, 0))
        log_ratio = jnp.where(valid, log_prob - batch.log_prob, 0.0)
        reward = jnp.where(valid, batch.reward, 0.0)

        def in_time(flat: chex.Array) -> chex.Array:
            return flat.reshape(self.length, -1)

        ended = (batch.terminated & valid, batch.truncated & valid, valid)
        target, advantage = vtrace(
            *(in_time(x)[:-1] for x in (log_ratio, reward)),
            in_time(value),
            *(in_time(x)[:-1] for x in ended),
            gamma=self.gamma,
            clip_rho=self.clip_rho,
            clip_c=self.clip_c,
        )
        padding = jnp.zeros_like(target[:1])
        target, advantage = (
            jax.lax.stop_gradient(jnp.concatenate([x, padding])).reshape(-1) for x in (target, advantage)
        )
        if self.normalize:
            advantage = normalize(advantage, valid)
        policy_loss = -masked_mean(log_prob * advantage, valid)
        value_loss = 0.5 * masked_mean(jnp.square(jnp.where(valid, value - target, 0.0)), valid)
        entropy = masked_mean(distributions.entropy(logits), valid)
        metrics = LossMetrics(
            policy_loss=policy_loss,
            value_loss=value_loss,
            entropy=entropy,
            approx_kl=masked_mean(jnp.expm1(log_ratio) - log_ratio, valid),
            clip_fraction=masked_mean(log_ratio > jnp.log(self.clip_rho), valid),
        )
        loss = policy_loss + self.value_weight * value_loss - self.entropy_weight * entropy
        return loss, jax.tree.map(jax.lax.stop_gradient, metrics)
