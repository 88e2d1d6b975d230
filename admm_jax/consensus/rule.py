"""One protocol for every consensus algorithm, and the exchange that those with one mean per round share.

A rule answers four questions: where does a worker start (`start`), what does its optimiser's step see of the
consensus (`gradient` before the step, `pull` after it), what happens when everyone meets (`exchange`), and what
changes when the penalty does (`change_penalty`). Optimisers, losses and devices are the caller's business.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp

from admm_jax.consensus.reduction import Reduction, weighted_mean
from admm_jax.consensus.regularizer import Regularizer
from admm_jax.consensus.state import ConsensusState, Residuals, Shared, Workers, initial_state
from admm_jax.consensus.trees import PyTree, elementwise, is_finite, select, squared_norm, squared_norms


class Rule(Protocol):
    """A consensus algorithm as pure functions. ``worker`` is one worker's part of `Workers` (no axis W)."""

    name: str
    synchronous: bool
    """Whether gradients are averaged at every optimiser step (`average_gradients`)."""

    def init(
        self, params: PyTree, num_workers: int, *, penalty: PyTree = 1.0, weights: jax.Array | None = None
    ) -> ConsensusState: ...

    def start(self, worker: Workers, shared: Shared) -> PyTree: ...

    def gradient(self, grads: PyTree, theta: PyTree, worker: Workers, shared: Shared) -> PyTree: ...

    def pull(self, theta: PyTree, worker: Workers, shared: Shared, strength: jax.Array) -> PyTree: ...

    def average_gradients(
        self, grads: PyTree, weight: jax.Array, participates: jax.Array, reduction: Reduction
    ) -> PyTree: ...

    def exchange(
        self,
        theta: PyTree,
        state: ConsensusState,
        *,
        participates: jax.Array,
        reduction: Reduction,
        healthy: jax.Array | None = None,
    ) -> tuple[ConsensusState, Residuals]: ...

    def change_penalty(self, state: ConsensusState, penalty: PyTree) -> ConsensusState: ...


def interpolate(theta: PyTree, target: PyTree, strength: jax.Array) -> PyTree:
    """(theta + c target) / (1 + c): the prox of c/2 |theta - target|^2, leaves [...]; c = ``strength`` >= 0."""
    return jax.tree.map(lambda a, b: (a + strength * b) / (1 + strength), theta, target)


class MeanExchange:
    """The plain members of the family: no term in the gradient, no pull, z = weighted mean, everyone starts at z.

    Subclasses override what differs. Contributions of absent workers stay as they were, and z is recomputed from
    all of them at every exchange, so that no drift accumulates.
    """

    name = "mean"
    synchronous = False
    with_dual = False
    with_momentum = False
    duals_cancel = True
    over_relaxation = 1.0
    restart = "consensus"
    regularizer = Regularizer()

    def init(
        self, params: PyTree, num_workers: int, *, penalty: PyTree = 1.0, weights: jax.Array | None = None
    ) -> ConsensusState:
        """State before the first round.

        Args:
            params: where everyone starts, leaves [...].
            num_workers: W.
            penalty: rho, a scalar or a tree like ``params``.
            weights: [W], how much each worker's objective counts; 1 each if None.

        Raises:
            ValueError: ``weights`` has another shape than [W].
        """
        return initial_state(
            params,
            num_workers,
            penalty=penalty,
            weights=weights,
            with_dual=self.with_dual,
            with_momentum=self.with_momentum,
        )

    def start(self, worker: Workers, shared: Shared) -> PyTree:
        """Where one worker's local solve begins, leaves [...]."""
        return shared.z if self.restart == "consensus" else worker.theta

    def gradient(self, grads: PyTree, theta: PyTree, worker: Workers, shared: Shared) -> PyTree:
        """One worker's gradient as its optimiser sees it, leaves [...]."""
        return grads

    def pull(self, theta: PyTree, worker: Workers, shared: Shared, strength: jax.Array) -> PyTree:
        """One worker's proximal step after the optimiser's step, leaves [...]; ``strength`` is c >= 0."""
        return theta

    def average_gradients(
        self, grads: PyTree, weight: jax.Array, participates: jax.Array, reduction: Reduction
    ) -> PyTree:
        """Gradients after whatever workers exchange at every optimiser step; leaves [W, ...]."""
        return grads

    def present(self, participates: jax.Array) -> jax.Array:
        """Who is part of the exchange, bool [W], of those who took part in the round."""
        return participates

    def message(self, theta: PyTree, workers: Workers, shared: Shared) -> PyTree:
        """What workers send, leaves [W, ...]."""
        return theta

    def absent(self, workers: Workers, shared: Shared) -> PyTree:
        """What stands for workers that are absent from an exchange, leaves [W, ...]."""
        return workers.contribution

    def next_z(self, mean: PyTree, shared: Shared, anyone: jax.Array) -> tuple[PyTree, PyTree | None]:
        """The consensus before the regulariser, and its momentum, leaves [...].

        Args:
            mean: of all contributions, leaves [...].
            shared: as left by the previous exchange.
            anyone: bool scalar, whether any worker takes part.
        """
        return mean, None

    def kept(self, theta: PyTree, shared: Shared, num_workers: jax.Array) -> PyTree:
        """Local solutions as their workers remember them, leaves [W, ...]; ``shared`` still holds the previous z."""
        return theta

    def next_dual(self, theta: PyTree, workers: Workers, z: PyTree, shared: Shared) -> PyTree | None:
        """Scaled duals of the workers that took part, leaves [W, ...]; ``shared`` still holds the previous z."""
        return workers.scaled_dual

    def exchange(
        self,
        theta: PyTree,
        state: ConsensusState,
        *,
        participates: jax.Array,
        reduction: Reduction,
        healthy: jax.Array | None = None,
    ) -> tuple[ConsensusState, Residuals]:
        """Everyone meets: one mean over the stored contributions, then local dual updates.

        Args:
            theta: local solutions, leaves [W, ...].
            state: as left by the previous exchange.
            participates: bool [W]; an absent worker keeps theta, dual and contribution.
            reduction: collectives over all workers.
            healthy: bool [W], False for a worker whose update must not be used for a reason that theta does
                not show; numbers in theta that are not finite are found here.

        Returns:
            The next state, and the residuals. A worker that takes part with numbers that are not finite is
            treated as absent, counted in ``failures``, and starts the next round from z.
        """
        shared, workers = state
        usable = is_finite(theta) if healthy is None else is_finite(theta) & healthy
        present = self.present(participates)
        joins, failed = present & usable, present & ~usable
        theta = select(joins, theta, workers.theta)

        message = self.message(theta, workers, shared)
        contribution = select(joins, message, workers.contribution)
        step_norms = jnp.sqrt(squared_norms(jax.tree.map(lambda a, b: a - b, theta, shared.z)))
        weighted_steps = workers.weight.astype(step_norms.dtype) * step_norms
        mean, weight_sum, sums = weighted_mean(
            select(joins, message, self.absent(workers, shared)),
            workers.weight,
            reduction,
            extra=(weighted_steps, weighted_steps**2, squared_norms(theta), jnp.ones_like(step_norms), failed, joins),
        )
        steps_sum, squared_steps_sum, theta_squared, num_workers, num_failed, num_joined = sums
        total_penalty = jax.tree.map(lambda rho: rho * weight_sum.astype(rho.dtype), shared.penalty)
        z, momentum = self.next_z(mean, shared, num_joined > 0)
        z = self.regularizer.prox(z, total_penalty)
        count = weight_sum / self.over_relaxation if self.duals_cancel else jnp.zeros_like(weight_sum)
        total_step = jax.tree.map(lambda a, b: count.astype(a.dtype) * (a - b), mean, shared.z)

        scaled_dual = workers.scaled_dual
        if scaled_dual is not None:
            scaled_dual = select(joins, self.next_dual(theta, workers, z, shared), scaled_dual)
        residuals = self._residuals(theta, scaled_dual, z, shared, reduction, num_workers, theta_squared)._replace(
            cosine=jnp.where(count > 0, mean_cosine(total_step, steps_sum, squared_steps_sum), 0),
            failed=num_failed.astype(weight_sum.dtype),
        )
        return (
            ConsensusState(
                Shared(z, shared.penalty, shared.round + 1, momentum),
                Workers(
                    theta=select(~failed, select(joins, self.kept(theta, shared, num_workers), theta), z),
                    scaled_dual=scaled_dual,
                    contribution=contribution,
                    weight=workers.weight,
                    failures=jnp.where(failed, workers.failures + 1, jnp.where(joins, 0, workers.failures)),
                ),
            ),
            residuals,
        )

    def _residuals(
        self,
        theta: PyTree,
        scaled_dual: PyTree | None,
        z: PyTree,
        shared: Shared,
        reduction: Reduction,
        num_workers: jax.Array,
        theta_squared: jax.Array,
    ) -> Residuals:
        gaps = squared_norms(jax.tree.map(lambda a, b: a - b, theta, z))
        dual = jax.tree.map(jnp.zeros_like, theta) if scaled_dual is None else scaled_dual
        penalty = elementwise(shared.penalty, z)
        multiplier = jax.tree.map(lambda rho, u: rho * u, penalty, dual)
        gap_squared, dual_squared, multiplier_squared = reduction.sum(
            (gaps, squared_norms(dual), squared_norms(multiplier))
        )
        move = jax.tree.map(lambda rho, new, old: rho * (new - old), penalty, z, shared.z)
        primal = jnp.sqrt(gap_squared)
        moved = jnp.sqrt(num_workers * squared_norm(move))
        scale = jnp.sqrt(jnp.maximum(theta_squared, num_workers * squared_norm(z)))
        return Residuals(
            primal=primal,
            dual=moved,
            relative_primal=_ratio(primal, scale),
            relative_dual=_ratio(moved, jnp.sqrt(multiplier_squared)),
            scaled_dual_norm=jnp.sqrt(dual_squared),
            cosine=jnp.zeros_like(primal),
            failed=jnp.zeros_like(primal),
        )

    def change_penalty(self, state: ConsensusState, penalty: PyTree) -> ConsensusState:
        """Adopt another rho (a scalar or a tree like z). lambda stays, so u becomes u rho_old / rho_new."""
        shared, workers = state
        penalty = jax.tree.map(jnp.asarray, penalty)
        scaled_dual = workers.scaled_dual
        if scaled_dual is not None:
            old = elementwise(shared.penalty, shared.z)
            new = elementwise(penalty, shared.z)
            ratio = jax.tree.map(lambda a, b: a / b, old, new)
            scaled_dual = jax.tree.map(lambda u, r: u * r, scaled_dual, ratio)
        return ConsensusState(shared._replace(penalty=penalty), workers._replace(scaled_dual=scaled_dual))


def _ratio(part: jax.Array, whole: jax.Array) -> jax.Array:
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 0)


def mean_cosine(total: PyTree, norms: jax.Array, squared_norms_sum: jax.Array) -> jax.Array:
    """Mean cosine between two of several vectors, each pair weighted by the product of its norms; no gather needed.

    |sum d_i|^2 - sum |d_i|^2 is the sum over pairs of 2 d_i.d_j.

    Args:
        total: sum d_i, leaves [...].
        norms: sum |d_i|.
        squared_norms_sum: sum |d_i|^2.

    Returns:
        Scalar in [-1, 1]; 0 for fewer than two vectors.
    """
    pairs, scale = squared_norm(total) - squared_norms_sum, norms**2 - squared_norms_sum
    # Where the total is not quite that of these vectors, the quotient could be anything.
    return jnp.clip(_ratio(pairs, scale), -1, 1)
