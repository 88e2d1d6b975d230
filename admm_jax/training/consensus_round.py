"""The compiled round of consensus rules: everyone plays and learns, then one exchange."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from admm_jax.consensus import Shared, Workers
from admm_jax.envs import Environment
from admm_jax.parallel import WorkerMesh, each_device_its_own, fold_each
from admm_jax.rl.observations import ObservationMoments, ShiftedSums
from admm_jax.training.config import TrainConfig
from admm_jax.training.exchange import Exchange
from admm_jax.training.local_solve import StepMetrics
from admm_jax.training.model import Model
from admm_jax.training.round import Outcome, Round, sample_of, valid_steps
from admm_jax.training.rules import make_penalty, make_rule
from admm_jax.training.state import TrainState


def make_exchange(config: TrainConfig) -> Exchange:
    """How the workers of a run meet."""
    return Exchange(make_rule(config), make_penalty(config), config.steps_per_round, config.adam_eps, Model.ravel)


class ConsensusRound(Round):
    """R rollouts, each with its local epochs, then one exchange."""

    def __init__(self, config: TrainConfig, environment: Environment, model: Model, mesh: WorkerMesh) -> None:
        self.exchange = make_exchange(config)
        super().__init__(config, environment, model, mesh, self.exchange.rule)

    def play_and_meet(self, state: TrainState, keys: jax.Array, lr: jax.Array) -> Outcome:
        shared, workers = state.consensus
        # z is one and the same everywhere; what starts from it is each device's own.
        origin = shared._replace(z=each_device_its_own(shared.z))
        theta = jax.vmap(self.exchange.rule.start, in_axes=(0, None))(workers, origin)
        as_trees = self.as_trees(workers, shared)
        carry = (jax.vmap(self.model.unravel)(theta), state.adam, state.environment, state.observation, state.scores)

        def collect_and_learn(carry: tuple, index: jax.Array) -> tuple[tuple, tuple]:
            return self.collect_and_learn(carry, fold_each(keys, index), *as_trees, state.moments, lr)

        carry, (steps, valid, seen, samples) = jax.lax.scan(
            collect_and_learn, carry, jnp.arange(self.config.rollouts_per_round)
        )
        trees, adam, *games = carry
        consensus, adam, residuals = self.exchange(
            jax.vmap(self.model.ravel)(trees),
            adam,
            state.adam.nu,
            state.consensus,
            lr=lr,
            next_lr=self.rate(shared.round + 1),
            reduction=self.reduction,
        )
        return Outcome(consensus, adam, tuple(games), trees, steps, valid, seen, samples[-1], residuals, extra={})

    def as_trees(self, workers: Workers, shared: Shared) -> tuple[Workers, Shared]:
        """The part of the consensus that local steps look at, as trees of the network."""
        unravel, duals, penalty = self.model.unravel, workers.scaled_dual, shared.penalty
        return (
            workers._replace(
                theta=None, contribution=None, scaled_dual=None if duals is None else jax.vmap(unravel)(duals)
            ),
            shared._replace(z=unravel(shared.z), penalty=unravel(penalty) if penalty.ndim else penalty),
        )

    def collect_and_learn(
        self,
        carry: tuple,
        keys: jax.Array,
        workers: Workers,
        shared: Shared,
        moments: ObservationMoments | None,
        lr: jax.Array,
    ) -> tuple[tuple, tuple[StepMetrics, jax.Array, ShiftedSums | None, jax.Array]]:
        """One rollout and the local epochs on it."""
        theta, adam, *games = carry
        games, data, seen = self.collect(theta, *games, moments, fold_each(keys, 0))
        theta, adam, metrics = self.learn(
            theta, adam, workers, shared, data, fold_each(keys, 1), lr, self.exchange.strength
        )
        return (theta, adam, *games), (metrics, valid_steps(data), seen, sample_of(data))
