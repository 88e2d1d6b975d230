import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.rl import advantages

N, Y = False, True

# gamma 0.5, lambda 0.5 (product 0.25) unless stated; each row: reward, value (one longer), terminated, truncated,
# valid, advantage. All worked by hand.
TABLE = {
    "plain": {
        "reward": [1, 2, 4], "value": [2, 4, 8, 16], "terminated": [N, N, N], "truncated": [N, N, N],
        "valid": [Y, Y, Y],
        # delta = 1 + 2 - 2 = 1; 2 + 4 - 4 = 2; 4 + 8 - 8 = 4
        "advantage": [1 + 0.25 * 3, 2 + 0.25 * 4, 4],
    },
    "termination": {
        "reward": [1, 2, 4], "value": [2, 4, 8, 16], "terminated": [N, Y, N], "truncated": [N, N, N],
        "valid": [Y, Y, Y],
        # the second delta loses its bootstrap: 2 - 4 = -2, and nothing of the third comes back
        "advantage": [1 + 0.25 * -2, -2, 4],
    },
    "truncation, then the reset call": {
        "reward": [1, 2, 99, 4], "value": [2, 4, 8, 16, 32], "terminated": [N, N, N, N], "truncated": [N, Y, N, N],
        "valid": [Y, Y, N, Y],
        # the second delta bootstraps from the terminal observation's value: 2 + 4 - 4 = 2; last: 4 + 16 - 16 = 4
        "advantage": [1 + 0.25 * 2, 2, 0, 4],
    },
    "both flags are a termination": {
        "reward": [1, 2, 99, 4], "value": [2, 4, 8, 16, 32], "terminated": [N, Y, N, N], "truncated": [N, Y, N, N],
        "valid": [Y, Y, N, Y],
        "advantage": [1 + 0.25 * -2, -2, 0, 4],
    },
    "reset call first": {
        "reward": [50, 2, 4], "value": [70, 4, 8, 16], "terminated": [Y, N, N], "truncated": [N, N, N],
        "valid": [N, Y, Y],
        "advantage": [0, 2 + 0.25 * 4, 4],
    },
    "lambda 0": {
        "lambda_": 0.0, "reward": [1, 2, 4], "value": [2, 4, 8, 16], "terminated": [N, N, N], "truncated": [N, N, N],
        "valid": [Y, Y, Y], "advantage": [1, 2, 4],
    },
    "lambda 1": {
        "lambda_": 1.0, "reward": [1, 2, 4], "value": [2, 4, 8, 16], "terminated": [N, N, N], "truncated": [N, N, N],
        # the discounted return less the value: 1 + 1 + 1 + 2 - 2; 2 + 2 + 4 - 4; 4 + 8 - 8
        "valid": [Y, Y, Y], "advantage": [3, 4, 4],
    },
}  # fmt: skip


def arrays(case):
    floats = [jnp.asarray(case[name], jnp.float32) for name in ("reward", "value")]
    flags = [jnp.asarray(case[name], bool) for name in ("terminated", "truncated", "valid")]
    return (*floats, *flags)


def by_hand(reward, value, terminated, truncated, valid, gamma, lambda_):
    """The sum of eq. 16, written out: forwards from every step until the episode or the rollout ends."""
    advantage = np.zeros_like(reward)
    for t in range(len(reward)):
        weight = 1.0
        for later in range(t, len(reward)):
            if not valid[t] or not valid[later]:
                break
            bootstrap = 0.0 if terminated[later] else value[later + 1]
            advantage[t] += weight * (reward[later] + gamma * bootstrap - value[later])
            weight *= gamma * lambda_
            if terminated[later] or truncated[later]:
                break
    return advantage


def random_rollout(rng, length):
    """Episodes that end at random, each end followed by the call that resets."""
    reward, value = rng.normal(size=length).astype("f"), rng.normal(size=length + 1).astype("f")
    terminated, truncated = rng.random((2, length)) < 0.15
    valid = np.ones(length, bool)
    for t in range(1, length):
        valid[t] = not (valid[t - 1] and (terminated[t - 1] or truncated[t - 1]))
    return reward, value, terminated & valid, truncated & valid, valid


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["plain", "jit"])
@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_hand_worked_table(case, transform):
    inputs = arrays(case)
    advantage, target = transform(advantages.generalized_advantages)(*inputs, 0.5, case.get("lambda_", 0.5))
    np.testing.assert_allclose(advantage, case["advantage"], rtol=1e-6)
    expected_target = np.where(case["valid"], np.add(case["advantage"], case["value"][:-1]), 0)
    np.testing.assert_allclose(target, expected_target, rtol=1e-6)


@pytest.mark.parametrize(("gamma", "lambda_"), [(0.97, 0.8), (1.0, 1.0), (0.6, 0.0)])
def test_random_episodes_against_the_slow_loop(gamma, lambda_):
    rng = np.random.default_rng(5)
    rollouts = [random_rollout(rng, 60) for _ in range(4)]
    batch = [jnp.stack(field, axis=1) for field in zip(*rollouts, strict=True)]
    advantage, target = advantages.generalized_advantages(*batch, gamma, lambda_)
    expected = np.stack([by_hand(*rollout, gamma, lambda_) for rollout in rollouts], axis=1)
    np.testing.assert_allclose(advantage, expected, atol=1e-5)
    np.testing.assert_allclose(target, np.where(batch[4], expected + batch[1][:-1], 0), atol=1e-5)


def test_axes_behind_time_are_independent():
    rng = np.random.default_rng(6)
    rollouts = [random_rollout(rng, 20) for _ in range(6)]
    batch = [jnp.stack(field, axis=1) for field in zip(*rollouts, strict=True)]
    together, _ = advantages.generalized_advantages(*(x.reshape(-1, 2, 3) for x in batch), 0.9, 0.7)
    apart = [advantages.generalized_advantages(*map(jnp.asarray, rollout), 0.9, 0.7)[0] for rollout in rollouts]
    np.testing.assert_allclose(together.reshape(20, 6), jnp.stack(apart, axis=1), rtol=1e-5)


@pytest.mark.parametrize("rubbish", [np.nan, np.inf, 1e9])
def test_nothing_leaks_from_or_across_a_reset_call(rubbish):
    reward, value, terminated, truncated, valid = arrays(TABLE["both flags are a termination"])
    clean = advantages.generalized_advantages(reward, value, terminated, truncated, valid, 0.9, 0.8)
    # Rubbish at the reset call's own slots, and other numbers in the episode that follows it.
    dirty = advantages.generalized_advantages(
        reward.at[2].set(rubbish), value.at[2].set(rubbish), terminated.at[2].set(True), truncated, valid, 0.9, 0.8
    )
    chex.assert_trees_all_close(clean, dirty)
    other_future = advantages.generalized_advantages(
        reward.at[3].set(7), value.at[3:].set(-5), terminated, truncated, valid, 0.9, 0.8
    )
    chex.assert_trees_all_close(clean[0][:3], other_future[0][:3])


def test_shapes_and_types_are_checked():
    reward, value, terminated, truncated, valid = arrays(TABLE["plain"])
    with pytest.raises(AssertionError):
        advantages.generalized_advantages(reward, value[:-1], terminated, truncated, valid, 0.9, 0.8)
    with pytest.raises(AssertionError):
        advantages.generalized_advantages(reward, value, terminated.astype(float), truncated, valid, 0.9, 0.8)


def test_moments_of_the_unmasked_entries():
    moments = advantages.masked_moments(jnp.array([1.0, np.nan, 2.0, 4.0]), jnp.array([Y, N, Y, Y]))
    np.testing.assert_allclose(moments, (3, 7, 21))


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_normalize_by_hand(transform):
    # mean 3, deviations -2, 0, 2, variance 8/3
    normal = transform(advantages.normalize)(jnp.array([1.0, 3.0, np.nan, 5.0]), jnp.array([Y, Y, N, Y]))
    np.testing.assert_allclose(normal, [-np.sqrt(1.5), 0, 0, np.sqrt(1.5)], rtol=1e-5, atol=1e-6)


def test_summed_moments_standardise_several_workers_as_one():
    x = jax.random.normal(jax.random.key(1), (3, 50)) * 4 + jnp.array([[-2.0], [0.0], [9.0]])
    mask = jax.random.bernoulli(jax.random.key(2), 0.7, x.shape)
    sums = [sum(field) for field in zip(*map(advantages.masked_moments, x, mask), strict=True)]
    apart = jnp.stack([advantages.standardize(row, *sums) for row in x])
    together = advantages.normalize(x, mask)
    np.testing.assert_allclose(jnp.where(mask, apart, 0), together, atol=1e-5)
    np.testing.assert_allclose(together[mask].mean(), 0, atol=1e-5)
    np.testing.assert_allclose(together[mask].std(), 1, rtol=1e-4)


@pytest.mark.parametrize("constant", [0.0, 5.3, -777.1])
def test_equal_advantages_become_nearly_zero_not_amplified_rounding(constant):
    normal = advantages.normalize(jnp.full(1000, constant), jnp.ones(1000, bool))
    np.testing.assert_allclose(normal, 0, atol=0.01)


def test_one_entry_or_none_gives_zeros():
    x = jnp.array([3.0, np.nan])
    np.testing.assert_array_equal(advantages.normalize(x, jnp.array([Y, N])), 0)
    np.testing.assert_array_equal(advantages.normalize(x, jnp.array([N, N])), 0)
