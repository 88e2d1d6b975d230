"""Adam with its parts in the open: the consensus needs its metric, and shares its second moment."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from admm_jax.training.state import Adam

BETA1, BETA2 = 0.9, 0.999
RMSPROP_DECAY = 0.99


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


class SharedOptimizer(NamedTuple):
    """The one optimiser of parameters that many workers push gradients to (Mnih et al. 2016, section 4).

    Attributes:
        name: adam, or rmsprop without momentum (decay 0.99), the paper's.
        eps: added to the root of the second moment (adam), under the root (rmsprop).
    """

    name: str
    eps: float

    def _transform(self) -> optax.GradientTransformation:
        if self.name == "adam":
            return optax.scale_by_adam(BETA1, BETA2, self.eps)
        return optax.scale_by_rms(RMSPROP_DECAY, self.eps, eps_in_sqrt=True)

    def init(self, params: jax.Array) -> Any:
        """State before the first gradient of parameters [d]."""
        return self._transform().init(params)

    def __call__(self, params: jax.Array, grads: jax.Array, state: Any, lr: jax.Array) -> tuple[jax.Array, Any]:
        """(parameters [d], gradient [d], state, learning rate) -> (parameters, state)."""
        direction, state = self._transform().update(grads, state)
        return params - lr * direction, state


class Schedule(NamedTuple):
    """Learning rate by steps collected: ``lr`` up to ``start``, linear to ``end``, and ``lr_end`` from there on.

    ``end`` = 0 keeps it constant. Held high and then lowered, a rate loses less than one that falls from the start
    (Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", section 3).
    """

    lr: float
    start: int = 0
    end: int = 0
    lr_end: float = 0.0

    def __call__(self, steps: jax.Array) -> jax.Array:
        """Rate of a round that starts after ``steps`` collected steps, float32."""
        if self.end == 0:
            return jnp.asarray(self.lr, jnp.float32)
        left = jnp.clip((self.end - steps.astype(jnp.float32)) / (self.end - self.start), 0, 1)
        return self.lr_end + (self.lr - self.lr_end) * left
