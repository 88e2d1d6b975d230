"""The compiled round of a parameter server: ticks in which everyone plays one rollout and pushes in its turn.

A3C as in Mnih et al. 2016, algorithm S3: a push is the gradient of one rollout, taken at what the worker fetched last
and clipped there; or the worker learns by itself and pushes how its parameters changed. What a worker does between two
of its pushes depends on nobody else, so all of them play at a time; the pushes take effect one by one
(`admm_jax.consensus.asynchronous`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from admm_jax.consensus import Clients, FedAvg, Residuals, Server
from admm_jax.consensus.trees import PyTree, is_finite, select, squared_norm, squared_norms
from admm_jax.envs import Environment
from admm_jax.parallel import Stream, WorkerMesh, each_device_its_own, fold_each, map_workers, stream_key
from admm_jax.rl.losses import Minibatch
from admm_jax.training.config import TrainConfig
from admm_jax.training.local_solve import StepMetrics
from admm_jax.training.model import Model
from admm_jax.training.optimizer import clip_by_global_norm
from admm_jax.training.round import Metrics, Outcome, Round, sample_of, valid_steps
from admm_jax.training.rules import make_a3c, make_shared_optimizer
from admm_jax.training.state import Adam, TrainState


class AsynchronousRound(Round):
    """Ticks of one rollout and one push per worker."""

    def __init__(self, config: TrainConfig, environment: Environment, model: Model, mesh: WorkerMesh) -> None:
        # Local steps see nothing of the others: those of FedAvg.
        super().__init__(config, environment, model, mesh, FedAvg())
        self.script = make_a3c(config)
        self.optimizer = make_shared_optimizer(config)

    def play_and_meet(self, state: TrainState, keys: jax.Array, lr: jax.Array) -> Outcome:
        server, ticks = state.consensus.shared, self.config.rollouts_per_round
        orders = jax.random.fold_in(stream_key(state.seed, Stream.SCRIPT), server.round)
        apply = None if self.optimizer is None else lambda z, grads, opt: self.optimizer(z, grads, opt, lr)

        def tick(carry: tuple, index: jax.Array) -> tuple[tuple, tuple]:
            consensus, adam, *games = carry
            tick_keys = fold_each(keys, index)
            theta = jax.vmap(self.model.unravel)(consensus.workers.theta)
            games, data, seen = self.collect(theta, *games, state.moments, fold_each(tick_keys, 0))
            if self.optimizer is not None:
                grads, metrics = self.gradients(theta, data)
                pushes, after, healthy = jax.vmap(self.model.ravel)(grads), consensus.workers.theta, None
            else:
                pushes, after, adam, healthy, metrics = self.differences(
                    theta, adam, consensus.workers, data, fold_each(tick_keys, 1), lr
                )
            order = jax.random.permutation(jax.random.fold_in(orders, index), self.config.workers)
            consensus, report = self.script.tick(
                pushes, after, consensus, order, apply, healthy=healthy, reduction=self.reduction
            )
            return (consensus, adam, *games), (metrics, valid_steps(data), seen, sample_of(data), report)

        carry = (state.consensus, state.adam, state.environment, state.observation, state.scores)
        carry, (steps, valid, seen, samples, reports) = jax.lax.scan(tick, carry, jnp.arange(ticks))
        (after, clients), adam, *games = carry
        after = after._replace(round=server.round + 1)
        residuals = self.residuals(server.z, after.z, clients)._replace(
            cosine=reports.cosine.mean(), failed=reports.failed.sum().astype(jnp.float32)
        )
        applied = reports.applied.sum()
        extra: Metrics = {
            "applied_pushes": applied,
            "rejected_pushes": reports.rejected.sum(),
            "fetches": reports.fetches.sum(),
            "staleness_mean": reports.staleness.sum() / jnp.maximum(applied, 1),
            "staleness_histogram": reports.histogram.sum(axis=0),
        }
        policies = jax.vmap(self.model.unravel)(clients.theta)
        consensus = state.consensus._replace(shared=after, workers=clients)
        return Outcome(consensus, adam, tuple(games), policies, steps, valid, seen, samples[-1], residuals, extra)

    def gradients(self, theta: Any, data: Minibatch) -> tuple[Any, StepMetrics]:
        """Clipped gradient of each worker's whole rollout, leaves [W, ...]."""

        def one(theta: Any, data: Minibatch) -> tuple[Any, StepMetrics]:
            grads, metrics = self.problem.gradient(theta, data)
            grads, norm = clip_by_global_norm(grads, self.config.max_grad_norm)
            return grads, StepMetrics(metrics, norm)

        return map_workers(one, self.mapping)(theta, data)

    def differences(
        self, theta: Any, adam: Adam, clients: Clients, data: Minibatch, keys: jax.Array, lr: jax.Array
    ) -> tuple[jax.Array, jax.Array, Adam, jax.Array, StepMetrics]:
        """The local epochs on each worker's rollout: pushes [W, d], parameters [W, d], Adam, who is healthy [W], and
        metrics."""
        nobody = clients._replace(theta=None)
        trees, following, metrics = self.learn(theta, adam, nobody, None, data, keys, lr, jnp.zeros(()))
        after = jax.vmap(self.model.ravel)(trees)
        healthy = is_finite(after) & is_finite(following.mu) & is_finite(following.nu)
        # Who failed fetches, and starts with fresh momentum.
        mended = Adam(
            following.count,
            select(healthy, following.mu, _zeros(following.mu)),
            select(healthy, following.nu, adam.nu),
        )
        return after - clients.theta, after, mended, healthy, metrics

    def residuals(self, before: jax.Array, z: jax.Array, clients: Clients) -> Residuals:
        """Distances at the end of a round, in the unit of the parameters (there is no penalty)."""
        count = self.config.workers
        gaps, norms = self.reduction.sum(
            (squared_norms(clients.theta - each_device_its_own(z)), squared_norms(clients.theta))
        )
        primal, moved = jnp.sqrt(gaps), jnp.sqrt(count * squared_norm(z - before))
        none = jnp.zeros_like(primal)
        scale = jnp.sqrt(jnp.maximum(norms, count * squared_norm(z)))
        return Residuals(primal, moved, primal / scale, none, none, none, none)


def initial_server(config: TrainConfig, params: jax.Array) -> tuple[Server, Clients]:
    """The server and its workers before the first round; ``params`` [d]."""
    optimizer = make_shared_optimizer(config)
    state = None if optimizer is None else optimizer.init(params)
    return make_a3c(config).init(params, config.workers, optimizer=state)


def _zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)
