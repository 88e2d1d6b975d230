"""Averaging without a dual: FedAvg and FedProx."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import jax

from admm_jax.consensus.regularizer import Regularizer
from admm_jax.consensus.rule import MeanExchange, interpolate
from admm_jax.consensus.state import Shared, Workers
from admm_jax.consensus.trees import PyTree, elementwise
from admm_jax.errors import InvalidInput


@dataclass(frozen=True)
class FedAvg(MeanExchange):
    """Local steps from z, then the weighted mean (McMahan et al. 2017, algorithm 1; local SGD).

    Local problems are not stationary at the common optimum, so with several local steps and workers that differ
    its fixed point is not the minimum of the sum. With one worker it is the plain optimiser.

    Args:
        regularizer: g(z), applied with the penalty of the state (Boyd et al. 2011, section 7.1.1).
    """

    regularizer: Regularizer = field(default_factory=Regularizer)
    name: ClassVar[str] = "fedavg"


@dataclass(frozen=True)
class FedProx(MeanExchange):
    """Local solves of f_i(theta) + rho/2 |theta - z|^2 from z, then the weighted mean (Li et al. 2020, algorithm 2):
    consensus ADMM with the dual held at 0.

    Args:
        inner: as in ADMM: ``exact``, ``gradient`` or ``proximal``.
        regularizer: g(z).

    Raises:
        InvalidInput: ``inner`` is none of these.
    """

    inner: Literal["exact", "gradient", "proximal"] = "proximal"
    regularizer: Regularizer = field(default_factory=Regularizer)
    name: ClassVar[str] = "fedprox"

    def __post_init__(self) -> None:
        if self.inner not in ("exact", "gradient", "proximal"):
            raise InvalidInput("inner", self.inner, "one of exact, gradient, proximal for fedprox")

    def centre(self, worker: Workers, shared: Shared) -> PyTree:
        """z, where the proximal term of a local problem is smallest; leaves [...]."""
        return shared.z

    def gradient(self, grads: PyTree, theta: PyTree, worker: Workers, shared: Shared) -> PyTree:
        if self.inner != "gradient":
            return grads
        penalty = elementwise(shared.penalty, theta)
        return jax.tree.map(lambda g, rho, x, z: g + rho * (x - z), grads, penalty, theta, shared.z)

    def pull(self, theta: PyTree, worker: Workers, shared: Shared, strength: jax.Array) -> PyTree:
        return interpolate(theta, shared.z, strength) if self.inner == "proximal" else theta
