"""The categorical distribution over A actions, given by unnormalised log probabilities (logits).

Every function takes logits [..., A] and broadcasts over the leading axes. Entropies and divergences are in nats.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp


def sample(logits: chex.Array, key: chex.PRNGKey) -> chex.Array:
    """One action per distribution: logits [..., A] -> int32 [...]."""
    return jax.random.categorical(key, logits, axis=-1).astype(jnp.int32)


def greedy(logits: chex.Array) -> chex.Array:
    """The most probable action, the lowest index on a tie: logits [..., A] -> int32 [...]."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def log_prob(logits: chex.Array, action: chex.Array) -> chex.Array:
    """log pi(action): logits [..., A], integer action [...] in [0, A) -> float [...], in nats."""
    chex.assert_type(action, int)
    chex.assert_equal_shape_prefix([logits, action], logits.ndim - 1)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)
    return chosen[..., 0]


def entropy(logits: chex.Array) -> chex.Array:
    """-sum_a pi(a) log pi(a): logits [..., A] -> float [...] in nats, between 0 and log A."""
    return -_expectation(logits, jax.nn.log_softmax(logits))


def kl(p_logits: chex.Array, q_logits: chex.Array) -> chex.Array:
    """KL(p || q) = sum_a p(a) (log p(a) - log q(a)): two logits [..., A] -> float [...] in nats, at least 0."""
    chex.assert_equal_shape([p_logits, q_logits])
    p, q = jax.nn.log_softmax(p_logits), jax.nn.log_softmax(q_logits)
    # Where p(a) = 0 both logs may be -inf, whose difference is NaN; that action adds nothing.
    return _expectation(p_logits, jnp.where(p == -jnp.inf, 0.0, p - q))


def _expectation(logits: chex.Array, x: chex.Array) -> chex.Array:
    # An action ruled out by a logit of -inf has probability 0 and log probability -inf: leave it out, or
    # 0 x inf = NaN. Masking x itself, not only the product, keeps the gradient finite as well.
    probability = jax.nn.softmax(logits)
    return jnp.sum(probability * jnp.where(probability > 0, x, 0.0), axis=-1)
