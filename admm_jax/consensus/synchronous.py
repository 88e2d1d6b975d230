"""Gradient averaging at every optimiser step: the synchronous baseline (A2C and PPO with data-parallel workers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from admm_jax.consensus.reduction import Reduction, weighted_mean
from admm_jax.consensus.rule import MeanExchange
from admm_jax.consensus.trees import PyTree, is_finite


@dataclass(frozen=True)
class GradientAveraging(MeanExchange):
    """Every worker applies the weighted mean of all gradients, so all of them stay equal.

    With one worker it is the plain optimiser. A gradient that is not finite is left out of its mean; if none is
    finite the mean is 0.
    """

    name: ClassVar[str] = "gradient"
    synchronous: ClassVar[bool] = True

    def average_gradients(
        self, grads: PyTree, weight: jax.Array, participates: jax.Array, reduction: Reduction
    ) -> PyTree:
        """The mean over the workers that take part, repeated for each; leaves [W, ...] -> [W, ...]."""
        usable = participates & is_finite(grads)
        mean, _, _ = weighted_mean(grads, jnp.where(usable, weight, 0), reduction)
        return jax.tree.map(lambda g, m: jnp.broadcast_to(m, g.shape), grads, mean)

    def present(self, participates: jax.Array) -> jax.Array:
        """Everyone: who was absent left its gradients out, but applied the others'."""
        return jnp.ones_like(participates)
