"""Global-variable consensus ADMM (Boyd et al. 2011, "Distributed Optimization and Statistical Learning via the
Alternating Direction Method of Multipliers", section 7.1), in the textbook order with inexact local solves.

    theta_i <- argmin f_i(theta) + rho/2 |theta - z + u_i|^2
    z       <- prox of g / (rho sum w)  at  sum_i w_i (theta_i + u_i) / sum w
    u_i     <- u_i + theta_i - z                                              lambda_i = rho u_i
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import jax

from admm_jax.consensus.regularizer import Regularizer
from admm_jax.consensus.rule import MeanExchange, interpolate
from admm_jax.consensus.state import Shared, Workers
from admm_jax.consensus.trees import PyTree, elementwise
from admm_jax.errors import InvalidInput

Inner = Literal["exact", "gradient", "proximal", "hybrid"]
Restart = Literal["consensus", "worker"]
Order = Literal["textbook", "dual_first"]


@dataclass(frozen=True)
class ADMM(MeanExchange):
    """Consensus ADMM.

    Args:
        inner: how the local problem is approached. ``exact``: the caller applies f_i's prox at `centre`.
            ``gradient``: lambda + rho (theta - z) is added to the gradient. ``proximal``: the optimiser sees f_i
            alone, and each of its steps is followed by the prox of the penalty, a pull towards z - u.
            ``hybrid``: lambda in the gradient, the pull towards z after the step.
        restart: start local solves from the ``consensus`` or from the ``worker``'s own last solution.
        over_relaxation: alpha in (0, 2); theta is replaced by alpha theta + (1 - alpha) z_previous in the z- and
            dual updates (Boyd et al. 2011, equation 3.19). 1 is no relaxation.
        order: when the dual moves. ``textbook``: after the consensus, by its distance to the new z. ``dual_first``:
            before it, by its distance to the z that the local solve started from, and what is averaged contains the
            new dual, as in FedPD (Zhang et al. 2021, algorithm 2) and FedDyn (Acar et al. 2021, algorithm 1):
            u <- u + theta - z_previous, z <- mean(theta + u). The duals do not sum to 0 on the way.
        dual_leak: delta in [0, 1]; u <- (1 - delta) u + theta - z. 0 is the textbook.
        regularizer: g(z).

    Raises:
        InvalidInput: a setting outside its range.
    """

    inner: Inner = "proximal"
    restart: Restart = "consensus"
    over_relaxation: float = 1.0
    dual_leak: float = 0.0
    order: Order = "textbook"
    regularizer: Regularizer = field(default_factory=Regularizer)

    name: ClassVar[str] = "admm"
    with_dual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.inner not in ("exact", "gradient", "proximal", "hybrid"):
            raise InvalidInput("inner", self.inner, "one of exact, gradient, proximal, hybrid")
        if self.restart not in ("consensus", "worker"):
            raise InvalidInput("restart", self.restart, "one of consensus, worker")
        if self.order not in ("textbook", "dual_first"):
            raise InvalidInput("order", self.order, "one of textbook, dual_first")
        if not (math.isfinite(self.over_relaxation) and 0 < self.over_relaxation < 2):
            raise InvalidInput("over_relaxation", self.over_relaxation, "above 0 and below 2")
        if not 0 <= self.dual_leak <= 1:
            raise InvalidInput("dual_leak", self.dual_leak, "between 0 and 1")

    @property
    def duals_cancel(self) -> bool:
        """Whether the weighted duals sum to 0 once everyone took part, so that the mean is that of the updates."""
        return self.order == "textbook"

    def centre(self, worker: Workers, shared: Shared) -> PyTree:
        """z - u, where the penalty of one worker's local problem is smallest; leaves [...]."""
        return jax.tree.map(lambda z, u: z - u, shared.z, worker.scaled_dual)

    def gradient(self, grads: PyTree, theta: PyTree, worker: Workers, shared: Shared) -> PyTree:
        penalty = elementwise(shared.penalty, theta)
        if self.inner == "gradient":
            # The gradient of a squared difference, written out: a norm would have none at theta = z - u.
            return jax.tree.map(
                lambda g, rho, x, c: g + rho * (x - c), grads, penalty, theta, self.centre(worker, shared)
            )
        if self.inner == "hybrid":
            return jax.tree.map(lambda g, rho, u: g + rho * u, grads, penalty, worker.scaled_dual)
        return grads

    def pull(self, theta: PyTree, worker: Workers, shared: Shared, strength: jax.Array) -> PyTree:
        if self.inner == "proximal":
            return interpolate(theta, self.centre(worker, shared), strength)
        if self.inner == "hybrid":
            return interpolate(theta, shared.z, strength)
        return theta

    def message(self, theta: PyTree, workers: Workers, shared: Shared) -> PyTree:
        dual = workers.scaled_dual
        if self.order == "dual_first":
            dual = self._move_dual(theta, workers, shared.z, shared)
        return jax.tree.map(lambda x, u: x + u, self._relax(theta, shared), dual)

    def next_dual(self, theta: PyTree, workers: Workers, z: PyTree, shared: Shared) -> PyTree:
        return self._move_dual(theta, workers, shared.z if self.order == "dual_first" else z, shared)

    def _move_dual(self, theta: PyTree, workers: Workers, z: PyTree, shared: Shared) -> PyTree:
        keep = 1 - self.dual_leak
        relaxed = self._relax(theta, shared)
        return jax.tree.map(lambda u, x, c: keep * u + x - c, workers.scaled_dual, relaxed, z)

    def _relax(self, theta: PyTree, shared: Shared) -> PyTree:
        if self.over_relaxation == 1:
            return theta
        alpha = self.over_relaxation
        return jax.tree.map(lambda x, z: alpha * x + (1 - alpha) * z, theta, shared.z)
