"""The one exchange of a round: second moments, consensus, duals, and the penalty that the next round will use.

With the pull after Adam's step, the penalty of a coordinate is R = c D / lr, where D = sqrt(v_hat) + eps is Adam's
metric: theta <- (theta + c (z - u)) / (1 + c) is the prox of R/2 |theta - z + u|^2 in the metric D / lr. The fixed
point is sum_i D_i^-1 grad f_i(z) = 0, so D has to be common to all workers, which is why they average v. lambda = R u
is what has to survive when lr or v changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from admm_jax.consensus import (
    ConsensusState,
    Reduction,
    Residuals,
    Rule,
    pull_strength,
    weighted_mean,
)
from admm_jax.consensus.trees import is_finite, select
from admm_jax.training.optimizer import metric
from admm_jax.training.rules import Penalty
from admm_jax.training.state import Adam

SMALLEST_LR = 1e-12
"""Stands in for a learning rate of 0, whose penalty would be infinite."""


class Exchange(NamedTuple):
    """How a run's workers meet.

    Attributes:
        rule: the consensus rule.
        penalty: kappa, rho and sharing.
        steps_per_round: K.
        adam_eps: epsilon of Adam, part of its metric.
        ravel: a worker's tree of parameters -> the flat vector [d] that workers agree on.
    """

    rule: Rule
    penalty: Penalty
    steps_per_round: int
    adam_eps: float
    ravel: Callable[[Any], jax.Array]

    @property
    def strength(self) -> jax.Array:
        """c of the pull after each optimiser step."""
        return pull_strength(self.penalty.kappa or 0.0, self.steps_per_round)

    @property
    def follows_metric(self) -> bool:
        """Whether the penalty is made of the shared metric, coordinate by coordinate."""
        return self.pulls_alone and self.penalty.share_moment_every > 0

    @property
    def pulls_alone(self) -> bool:
        """Whether the pull defines the penalty (no rho of its own)."""
        return self.penalty.kappa is not None and self.penalty.rho is None

    def initial_penalty(self, params: jax.Array, lr: jax.Array) -> jax.Array:
        """Penalty of parameters [d] before any metric is known: D counts as 1."""
        if not self.pulls_alone:
            return jnp.asarray(1.0 if self.penalty.rho is None else self.penalty.rho)
        scalar = self.strength / jnp.maximum(lr, SMALLEST_LR)
        return jnp.full_like(params, scalar) if self.follows_metric else scalar

    def __call__(
        self,
        theta: jax.Array,
        adam: Adam,
        nu_before: Any,
        state: ConsensusState,
        *,
        lr: jax.Array,
        next_lr: jax.Array,
        reduction: Reduction,
    ) -> tuple[ConsensusState, Adam, Residuals]:
        """Meet.

        Args:
            theta: after the local steps, [W, d].
            adam: after the local steps, trees with leaves [W, ...].
            nu_before: second moments before them, to go back to.
            state: of the consensus.
            lr, next_lr: of this round and of the next.
            reduction: collectives over all workers.

        Returns:
            The consensus and optimisers to start the next round with, and the residuals.
        """
        healthy = is_finite(theta) & is_finite(adam.mu) & is_finite(adam.nu)
        nu, penalty, next_penalty = self._share_moment(
            adam, nu_before, healthy, state, lr=lr, next_lr=next_lr, reduction=reduction
        )
        state = state._replace(shared=state.shared._replace(penalty=penalty))
        everyone = jnp.ones_like(healthy)
        state, residuals = self.rule.exchange(theta, state, participates=everyone, healthy=healthy, reduction=reduction)
        state = self.rule.change_penalty(state, next_penalty)
        # A worker that failed starts from z with fresh momentum.
        mu = select(healthy, adam.mu, jax.tree.map(jnp.zeros_like, adam.mu))
        return state, Adam(adam.count, mu, nu), residuals

    def _share_moment(
        self,
        adam: Adam,
        nu_before: Any,
        healthy: jax.Array,
        state: ConsensusState,
        *,
        lr: jax.Array,
        next_lr: jax.Array,
        reduction: Reduction,
    ) -> tuple[Any, Any, Any]:
        """Second moments, this round's penalty, and the next round's."""
        shared, workers = state
        lr, next_lr = jnp.maximum(lr, SMALLEST_LR), jnp.maximum(next_lr, SMALLEST_LR)
        every = self.penalty.share_moment_every
        own_nu = select(healthy, adam.nu, nu_before)

        def keep() -> tuple[Any, Any, Any]:
            if not self.pulls_alone:
                return own_nu, shared.penalty, shared.penalty
            return own_nu, shared.penalty, shared.penalty * (lr / next_lr)

        def share() -> tuple[Any, Any, Any]:
            mean, weight_sum, _ = weighted_mean(adam.nu, jnp.where(healthy, workers.weight, 0), reduction)
            someone = weight_sum > 0
            nu = jax.tree.map(lambda before, new: jnp.where(someone, new, before), nu_before, mean)
            if not self.follows_metric:
                _, penalty, next_penalty = keep()
                return nu, penalty, next_penalty
            steps = (shared.round + 1) * self.steps_per_round
            common = self.strength * self.ravel(metric(steps, mean, self.adam_eps))
            # Until a metric is known the duals have no unit to keep: the first one is adopted, not changed to.
            first = shared.round < every
            penalty = jnp.where(first & someone, common / lr, shared.penalty)
            next_penalty = jnp.where(someone, common / next_lr, penalty * (lr / next_lr))
            return nu, penalty, next_penalty

        if every == 0:
            return keep()
        if every == 1:
            return share()
        return jax.lax.cond((shared.round + 1) % every == 0, share, keep)
