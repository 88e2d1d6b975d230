import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.rl import distributions

P = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
Q = np.array([[0.2, 0.2, 0.6], [0.7, 0.2, 0.1]])


def logits(probability):
    # Shifting all logits by a constant changes nothing.
    return jnp.log(jnp.asarray(probability, jnp.float32)) + 7.0


def test_formulas_for_known_probabilities():
    action = jnp.array([1, 2])
    np.testing.assert_allclose(distributions.log_prob(logits(P), action), np.log([0.3, 0.8]), rtol=1e-5)
    np.testing.assert_allclose(distributions.entropy(logits(P)), -(P * np.log(P)).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(distributions.kl(logits(P), logits(Q)), (P * np.log(P / Q)).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(distributions.kl(logits(P), logits(P)), 0, atol=1e-6)
    np.testing.assert_array_equal(distributions.greedy(logits(P)), [0, 2])


@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_leading_axes(leading):
    x = jax.random.normal(jax.random.key(3), (*leading, 6))
    action = distributions.sample(x, jax.random.key(4))
    chex.assert_shape(
        [action, distributions.greedy(x), distributions.log_prob(x, action), distributions.entropy(x),
         distributions.kl(x, x)], leading,
    )  # fmt: skip
    chex.assert_type([action, distributions.greedy(x)], jnp.int32)


def test_samples_follow_the_probabilities():
    draws = distributions.sample(jnp.broadcast_to(logits(P[0]), (20_000, 3)), jax.random.key(0))
    np.testing.assert_allclose(np.bincount(draws, minlength=3) / 20_000, P[0], atol=0.015)


def test_an_impossible_action_keeps_values_and_gradients_finite():
    ruled_out = jnp.array([0.0, -jnp.inf, 1.0])
    other = jnp.array([0.5, -jnp.inf, 0.2])
    assert np.isfinite(distributions.entropy(ruled_out))
    assert np.isfinite(distributions.kl(ruled_out, other))
    assert np.isfinite(jax.grad(distributions.entropy)(ruled_out)).all()


def test_log_prob_refuses_a_missing_axis():
    with pytest.raises(AssertionError):
        distributions.log_prob(jnp.zeros((4, 3)), jnp.zeros(2, jnp.int32))
