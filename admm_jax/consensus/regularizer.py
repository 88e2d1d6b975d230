"""The term g(z) that only the consensus carries: min sum_i w_i f_i(theta_i) + g(z), theta_i = z."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from admm_jax.consensus.trees import PyTree, elementwise
from admm_jax.errors import InvalidInput


@dataclass(frozen=True)
class Regularizer:
    """g(z) = l1 |z|_1 + l2/2 |z|^2; no regulariser with both at 0.

    The z-update of consensus ADMM with such a term is the prox of g / (rho sum w) at the weighted mean
    of theta_i + u_i (Boyd et al. 2011, section 7.1.1, equation 7.6).

    Args:
        l1: weight of the 1-norm, in loss units per parameter unit; finite, >= 0.
        l2: weight of half the squared 2-norm; finite, >= 0.

    Raises:
        InvalidInput: a weight is negative or not finite.
    """

    l1: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        for field in ("l1", "l2"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidInput(field, value, "a finite number >= 0")

    def prox(self, mean: PyTree, penalty: PyTree) -> PyTree:
        """argmin_z g(z) + sum penalty/2 (z - mean)^2, elementwise.

        Args:
            mean: leaves [...].
            penalty: total penalty (rho times the sum of the weights), a scalar or a tree like ``mean``.
        """
        if self.l1 == 0 and self.l2 == 0:
            return mean

        def shrink(leaf: jax.Array, rho: jax.Array) -> jax.Array:
            thresholded = jnp.sign(leaf) * jnp.maximum(jnp.abs(leaf) - self.l1 / rho, 0)
            return thresholded * (rho / (rho + self.l2))

        return jax.tree.map(shrink, mean, elementwise(penalty, mean))
