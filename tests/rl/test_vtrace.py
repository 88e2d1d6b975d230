"""V-trace against a table worked out by hand, against GAE, and against a loop; its loss over whole rollouts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.errors import InvalidInput
from admm_jax.rl.advantages import generalized_advantages
from admm_jax.rl.vtrace import Sequences, VTraceLoss, vtrace

T, E = 6, 3


def case(seed=0):
    """A random rollout with an end, a time limit and the resets after them."""
    random = np.random.default_rng(seed)
    reward, value = random.normal(size=(T, E)), random.normal(size=(T + 1, E))
    terminated, truncated, valid = np.zeros((T, E), bool), np.zeros((T, E), bool), np.ones((T, E), bool)
    terminated[1, 0], valid[2, 0] = True, False
    truncated[3, 1], valid[4, 1] = True, False
    truncated[5, 2] = True
    reward[~valid] = np.nan
    return random.normal(0, 0.5, size=(T, E)), reward, value, terminated, truncated, valid


@pytest.mark.parametrize("transform", [jax.jit, lambda f: f], ids=["jit", "plain"])
def test_three_steps_by_hand(transform):
    # gamma 0.5, clip_rho 1, clip_c 0.5; ratios 2, 0.25, 1; rewards 1, 0, 2; values 0, 4, 2, 8.
    # delta: 1 x (1 + 2 - 0) = 3;  0.25 x (0 + 1 - 4) = -0.75;  1 x (2 + 4 - 2) = 4.
    # v2 = 2 + 4 = 6;  v1 = 4 - 0.75 + 0.5 x 0.25 x (6 - 2) = 3.75;  v0 = 0 + 3 + 0.5 x 0.5 x (3.75 - 4) = 2.9375.
    # A: 1 x (1 + 0.5 x 3.75 - 0) = 2.875;  0.25 x (0 + 0.5 x 6 - 4) = -0.25;  1 x (2 + 0.5 x 8 - 2) = 4.
    none = jnp.zeros(3, bool)
    target, advantage = transform(lambda ratio, reward, value: vtrace(
        jnp.log(ratio), reward, value, none, none, ~none, gamma=0.5, clip_rho=1.0, clip_c=0.5
    ))(jnp.array([2.0, 0.25, 1.0]), jnp.array([1.0, 0, 2]), jnp.array([0.0, 4, 2, 8]))  # fmt: skip
    np.testing.assert_allclose(target, [2.9375, 3.75, 6], atol=1e-6)
    np.testing.assert_allclose(advantage, [2.875, -0.25, 4], atol=1e-6)


def test_a_policy_that_has_not_moved_gets_gae_with_lambda_one():
    reward, value = jnp.float32(case()[1]), jnp.float32(case()[2])
    flags = [jnp.asarray(flag) for flag in case()[3:]]
    target, advantage = vtrace(jnp.zeros((T, E)), reward, value, *flags, gamma=0.9, clip_rho=1.0, clip_c=1.0)
    expected, returns = generalized_advantages(reward, value, *flags, 0.9, 1.0)
    np.testing.assert_allclose(advantage, expected, atol=1e-5)
    np.testing.assert_allclose(jnp.where(flags[2], target, 0), returns, atol=1e-5)


@pytest.mark.parametrize(("clip_rho", "clip_c"), [(1.0, 1.0), (0.7, 1.3), (5.0, 0.2)])
def test_off_policy_equals_a_loop(clip_rho, clip_c):
    log_ratio, reward, value, terminated, truncated, valid = case(3)
    target, advantage = np.zeros((T, E)), np.zeros((T, E))
    for e in range(E):
        excess, following = 0.0, value[T, e]
        for t in reversed(range(T)):
            if not valid[t, e]:
                target[t, e], excess, following = value[t, e], 0.0, value[t, e]
                continue
            rho, c = min(clip_rho, np.exp(log_ratio[t, e])), min(clip_c, np.exp(log_ratio[t, e]))
            gamma = 0.0 if terminated[t, e] else 0.8
            if terminated[t, e] or truncated[t, e]:
                excess = 0.0
            advantage[t, e] = rho * (reward[t, e] + gamma * following - value[t, e])
            excess = rho * (reward[t, e] + gamma * value[t + 1, e] - value[t, e]) + 0.8 * c * excess
            following = target[t, e] = value[t, e] + excess
    result = vtrace(
        *map(jnp.float32, (log_ratio, reward, value)), *map(jnp.asarray, (terminated, truncated, valid)),
        gamma=0.8, clip_rho=clip_rho, clip_c=clip_c,
    )  # fmt: skip
    np.testing.assert_allclose(result[0], target, atol=1e-5)
    np.testing.assert_allclose(result[1], advantage, atol=1e-5)


@pytest.fixture
def batch():
    log_ratio, reward, _, terminated, truncated, valid = case(5)

    def flat(rows, fill):
        return jnp.asarray(np.concatenate([rows, np.full((1, E), fill)])).reshape(-1)

    return Sequences(
        observation=jnp.zeros(((T + 1) * E, 2)),
        action=jnp.tile(jnp.arange(2), (T + 1) * E)[: (T + 1) * E].astype(jnp.int32),
        log_prob=jnp.float32(flat(np.log(0.4) - log_ratio, np.nan)),
        reward=jnp.float32(flat(reward, np.nan)),
        terminated=flat(terminated, True),
        truncated=flat(truncated, True),
        valid=flat(valid, False),
    )


@pytest.mark.slow
def test_the_loss_reads_nothing_at_invalid_steps(batch):
    loss = VTraceLoss(length=T + 1, gamma=0.9, value_weight=0.3, entropy_weight=0.02)
    logits, value = jnp.ones(((T + 1) * E, 2)) * 0.1, jnp.linspace(-1, 1, (T + 1) * E)

    def of(logits, value):
        return loss(logits, value, batch)[0]

    gradients = jax.grad(of, argnums=(0, 1))(logits, value)
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[0][~batch.valid], 0)
    np.testing.assert_array_equal(gradients[1][~batch.valid], 0)
    assert np.isfinite(of(logits, value))


def test_the_loss_by_its_parts(batch):
    loss = VTraceLoss(length=T + 1, gamma=0.9, clip_rho=0.8, value_weight=0.3, entropy_weight=0.02)
    random = np.random.default_rng(1)
    logits, value = jnp.float32(random.normal(size=((T + 1) * E, 2))), jnp.float32(random.normal(size=(T + 1) * E))
    total, metrics = loss(logits, value, batch)
    log_pi = np.asarray(jax.nn.log_softmax(logits))
    chosen = log_pi[np.arange(len(log_pi)), batch.action]
    valid = np.asarray(batch.valid)
    shape = (T + 1, E)
    target, advantage = vtrace(
        jnp.float32(np.where(valid, chosen - batch.log_prob, 0).reshape(shape)[:-1]),
        batch.reward.reshape(shape)[:-1],
        value.reshape(shape),
        *(flag.reshape(shape)[:-1] for flag in (batch.terminated, batch.truncated, batch.valid)),
        gamma=0.9, clip_rho=0.8, clip_c=1.0,
    )  # fmt: skip
    kept = valid.reshape(shape)[:-1]
    policy = -(chosen.reshape(shape)[:-1] * advantage)[kept].mean()
    error = 0.5 * ((value.reshape(shape)[:-1] - target) ** 2)[kept].mean()
    entropy = -(np.exp(log_pi) * log_pi).sum(axis=1)[valid].mean()
    assert metrics.policy_loss == pytest.approx(float(policy), abs=1e-5)
    assert metrics.value_loss == pytest.approx(float(error), abs=1e-5)
    assert total == pytest.approx(float(policy + 0.3 * error - 0.02 * entropy), abs=1e-5)


@pytest.mark.parametrize(("settings", "field"), [({"clip_rho": 0.0}, "clip_rho"), ({"clip_c": -1.0}, "clip_c"),
                                                ({"length": 1}, "length"), ({"gamma": 1.5}, "gamma")])  # fmt: skip
def test_settings_out_of_range(settings, field):
    with pytest.raises(InvalidInput) as caught:
        VTraceLoss(**({"length": 4} | settings))
    assert caught.value.field == field
