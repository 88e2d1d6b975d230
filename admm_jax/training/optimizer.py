"""Adam with its parts in the open: the consensus needs its metric, and shares its second moment."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from admm_jax.training.state import Adam

BETA1, BETA2 = 0.9, 0.999


def clip_by_global_norm(grads: Any, max_norm: float) -> tuple[Any, jax.Array]:
    """Gradient of norm <= ``max_norm`` in the same direction, and the norm before (Pascanu et al. 2013)."""
    norm = optax.global_norm(grads)
    scale = jnp.minimum(1.0, max_norm / jnp.maximum(norm, 1e-12))
    return jax.tree.map(lambda g: g * scale, grads), norm


def adam_direction(grads: Any, adam: Adam, eps: float) -> tuple[Any, Adam]:
    """One worker's Adam step without the learning rate: (m_hat / D, next state), D = sqrt(v_hat) + eps."""
    transform = optax.scale_by_adam(BETA1, BETA2, eps)
    updates, state = transform.update(grads, optax.ScaleByAdamState(adam.count, adam.mu, adam.nu))
    return updates, Adam(state.count, state.mu, state.nu)


def metric(count: jax.Array, nu: Any, eps: float) -> Any:
    """D = sqrt(v_hat) + eps, the diagonal metric in which Adam descends; leaves as those of ``nu``."""
    correction = 1 - BETA2 ** jnp.maximum(count, 1).astype(jnp.float32)
    return jax.tree.map(lambda v: jnp.sqrt(v / correction) + eps, nu)


def learning_rate(lr: float, anneal_steps: int, steps_before: jax.Array) -> jax.Array:
    """Learning rate of a round that starts after ``steps_before`` collected steps; linear to 0, or constant."""
    if anneal_steps == 0:
        return jnp.asarray(lr, jnp.float32)
    return lr * jnp.clip(1 - steps_before.astype(jnp.float32) / anneal_steps, 0, 1)
