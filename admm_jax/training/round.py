"""The compiled round: rollouts, advantages, K local steps, one exchange, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from admm_jax.consensus import Residuals, Shared, Workers
from admm_jax.envs import Environment
from admm_jax.parallel import (
    REPLICATED,
    MeshReduction,
    WorkerMesh,
    each_device_its_own,
    fold_each,
    local_workers,
    map_workers,
    resolve_mapping,
    split_each,
    with_fixed_parameters,
    worker_keys,
)
from admm_jax.rl import distributions, observations
from admm_jax.rl.advantages import generalized_advantages, masked_moments, normalize, standardize
from admm_jax.rl.losses import Minibatch
from admm_jax.rl.observations import ObservationMoments, ShiftedSums
from admm_jax.rl.rollout import EpisodeScores, Trajectory, rollout
from admm_jax.training.config import TrainConfig
from admm_jax.training.exchange import Exchange
from admm_jax.training.local_solve import LocalProblem, StepMetrics, minibatch_indices, solve_locally
from admm_jax.training.model import Model
from admm_jax.training.rules import make_loss, make_penalty, make_rule, make_schedule
from admm_jax.training.state import STATE_SPECS, Adam, Counters, TrainState

KL_OBSERVATIONS = 64
"""Observations per worker on which its policy is compared with that of z."""

Metrics = dict[str, jax.Array]
RoundFunction = Callable[[TrainState], tuple[TrainState, Metrics]]


def make_exchange(config: TrainConfig) -> Exchange:
    """How the workers of a run meet."""
    return Exchange(make_rule(config), make_penalty(config), config.steps_per_round, config.adam_eps, Model.ravel)


def make_round(config: TrainConfig, environment: Environment, model: Model, mesh: WorkerMesh) -> RoundFunction:
    """One round as one jitted function of the state, which is donated.

    Args:
        config: the run.
        environment: with W x E environments over all devices.
        model: actor-critic on a flat vector of parameters.
        mesh: where workers live.

    Returns:
        (state) -> (state, metrics); metrics are scalars, equal on every device.
    """
    one_round = Round(config, environment, model, mesh)
    return jax.jit(
        mesh.on_every_device(one_round, in_specs=(STATE_SPECS,), out_specs=(STATE_SPECS, REPLICATED)),
        donate_argnums=0,
    )


class Round:
    """What one device does in a round, for its own share W of the workers."""

    def __init__(self, config: TrainConfig, environment: Environment, model: Model, mesh: WorkerMesh) -> None:
        self.config = config
        self.environment = environment
        self.mesh = mesh
        self.model = model
        self.exchange = make_exchange(config)
        self.rule = self.exchange.rule
        self.reduction = MeshReduction()
        self.mapping = resolve_mapping(
            config.worker_mapping, convolutional=config.network != "mlp", platform=jax.default_backend()
        )
        self.problem = LocalProblem(
            model.network.apply,
            make_loss(config),
            self.rule,
            config.max_grad_norm,
            config.adam_eps,
            normalize_minibatch=config.normalize_advantages == "minibatch",
        )

    def __call__(self, state: TrainState) -> tuple[TrainState, Metrics]:
        config, (shared, workers) = self.config, state.consensus
        keys = worker_keys(config.seed, local_workers(self.mesh.workers_per_device), shared.round)
        lr, next_lr = self.rate(shared.round), self.rate(shared.round + 1)

        # z is one and the same everywhere; what starts from it is each device's own.
        origin = shared._replace(z=each_device_its_own(shared.z))
        theta = jax.vmap(self.rule.start, in_axes=(0, None))(workers, origin)
        as_trees = self.as_trees(workers, shared)
        carry = (
            jax.vmap(self.model.unravel)(theta),
            state.adam,
            state.environment,
            state.observation,
            state.scores,
        )

        def collect_and_learn(carry: tuple, index: jax.Array) -> tuple[tuple, tuple]:
            return self.collect_and_learn(carry, fold_each(keys, index), *as_trees, state.moments, lr)

        carry, (steps, valid, seen, samples) = jax.lax.scan(
            collect_and_learn, carry, jnp.arange(config.rollouts_per_round)
        )
        trees, adam, environment, observation, scores = carry
        theta = jax.vmap(self.model.ravel)(trees)

        consensus, adam, residuals = self.exchange(
            theta, adam, state.adam.nu, state.consensus, lr=lr, next_lr=next_lr, reduction=self.reduction
        )
        divergence = self.divergence_from_consensus(trees, consensus.shared.z, samples[-1])
        sums = self.reduction.sum(
            {
                "valid": valid.sum(axis=0),
                "kl_to_z": divergence,
                "steps": jax.tree.map(lambda x: x.mean(axis=0), steps),
                "return": scores.finished.sum(axis=1),
                "length": scores.finished_length.sum(axis=1),
                "episodes": scores.count.sum(axis=1),
                "seen": jax.tree.map(lambda x: x.sum(axis=0), seen),
            }
        )
        moments = None if state.moments is None else observations.merge(state.moments, sums["seen"])
        counters = Counters(state.counters.env_steps + sums["valid"], state.counters.episodes + sums["episodes"])
        metrics = self.metrics(sums, residuals, counters, lr)
        return TrainState(consensus, adam, environment, observation, scores.cleared(), moments, counters), metrics

    def as_trees(self, workers: Workers, shared: Shared) -> tuple[Workers, Shared]:
        """The part of the consensus that local steps look at, as trees of the network."""
        unravel, duals, penalty = self.model.unravel, workers.scaled_dual, shared.penalty
        return (
            workers._replace(
                theta=None, contribution=None, scaled_dual=None if duals is None else jax.vmap(unravel)(duals)
            ),
            shared._replace(z=unravel(shared.z), penalty=unravel(penalty) if penalty.ndim else penalty),
        )

    def rate(self, round_index: jax.Array) -> jax.Array:
        """Learning rate of a round."""
        return make_schedule(self.config)(round_index.astype(jnp.float32) * self.config.env_steps_per_round)

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
        theta, adam, metrics = self.learn(theta, adam, workers, shared, data, fold_each(keys, 1), lr)
        stride = max(1, data.action.shape[1] // KL_OBSERVATIONS)
        samples = data.observation[:, ::stride][:, :KL_OBSERVATIONS]
        return (theta, adam, *games), (metrics, data.valid.sum(axis=1, dtype=jnp.int32), seen, samples)

    def collect(
        self,
        theta: Any,
        env_state: Any,
        observation: jax.Array,
        scores: EpisodeScores,
        moments: ObservationMoments | None,
        keys: jax.Array,
    ) -> tuple[tuple[Any, jax.Array, EpisodeScores], Minibatch, ShiftedSums | None]:
        """One rollout with everyone's own parameters, its advantages, and what it adds to the moments."""
        config = self.config
        network = with_fixed_parameters(self.model.network.apply, theta, self.mapping)

        def act(observation: jax.Array) -> tuple[jax.Array, jax.Array]:
            return network(self.as_seen(observation, moments))

        env_state, observation, scores, trajectory = rollout(
            act,
            self.environment.step,
            env_state,
            observation,
            scores,
            keys,
            config.rollout,
            clip_rewards=config.clip_rewards,
        )
        _, last_value = act(observation)
        data = self.learning_data(trajectory, last_value)
        seen = None
        if moments is not None:
            seen = map_workers(lambda rows, valid: observations.shifted_sums(rows, valid, moments), self.mapping)(
                data.observation, data.valid
            )
        data = data._replace(observation=self.as_seen(data.observation, moments))
        return (env_state, observation, scores), data, seen

    def as_seen(self, observation: jax.Array, moments: ObservationMoments | None) -> jax.Array:
        """Raw observations [..., *obs] as the network takes them."""
        return observation if moments is None else observations.normalized(observation, moments)

    def learn(
        self,
        theta: Any,
        adam: Adam,
        workers: Workers,
        shared: Shared,
        data: Minibatch,
        keys: jax.Array,
        lr: jax.Array,
    ) -> tuple[Any, Adam, StepMetrics]:
        """The local epochs on one rollout."""
        config = self.config
        return solve_locally(
            self.problem,
            theta,
            adam,
            workers,
            shared,
            data,
            minibatch_indices(keys, config.local_epochs, config.minibatches, data.action.shape[1]),
            lr=lr,
            strength=self.exchange.strength,
            mapping=self.mapping,
            reduction=self.reduction,
        )

    def learning_data(self, trajectory: Trajectory, last_value: jax.Array) -> Minibatch:
        """Advantages, and one flat batch per worker: leaves [T, W, E, ...] -> [W, T E, ...]."""
        config = self.config
        values = jnp.concatenate([trajectory.value, last_value[None]])
        advantage, target = generalized_advantages(
            trajectory.reward,
            values,
            trajectory.terminated,
            trajectory.truncated,
            trajectory.valid,
            config.gamma,
            config.gae_lambda,
        )

        def flat(leaf: jax.Array) -> jax.Array:
            leaf = jnp.moveaxis(leaf, 1, 0)
            return leaf.reshape(leaf.shape[0], -1, *leaf.shape[3:])

        data = Minibatch(
            observation=flat(trajectory.observation),
            action=flat(trajectory.action),
            log_prob=flat(trajectory.log_prob),
            value=flat(trajectory.value),
            advantage=flat(advantage),
            target=flat(target),
            valid=flat(trajectory.valid),
        )
        return data._replace(advantage=self.normalized(data.advantage, data.valid))

    def normalized(self, advantage: jax.Array, valid: jax.Array) -> jax.Array:
        """Advantages [W, B] as the config wants them, except per minibatch, which comes later."""
        scope = self.config.normalize_advantages
        if scope == "worker":
            return jax.vmap(normalize)(advantage, valid)
        if scope == "global":
            moments = self.reduction.sum(jax.vmap(masked_moments)(advantage, valid))
            return jnp.where(valid, standardize(advantage, *moments), 0)
        return advantage

    def divergence_from_consensus(self, theta: Any, z: jax.Array, observation: jax.Array) -> jax.Array:
        """KL(pi_i || pi_z) in nats, [W], of trees with leaves [W, ...] on observations [W, B, *obs]."""
        consensus = self.model.unravel(z)

        def one(theta: Any, observation: jax.Array) -> jax.Array:
            own, _ = self.model.network.apply(theta, observation)
            common, _ = self.model.network.apply(consensus, observation)
            return distributions.kl(own, common).mean()

        return map_workers(one, self.mapping)(theta, observation)

    def metrics(self, sums: dict, residuals: Residuals, counters: Counters, lr: jax.Array) -> Metrics:
        """Scalars of one round; returns are raw, NaN if no episode ended."""
        num_workers = self.config.workers
        steps: StepMetrics = jax.tree.map(lambda x: x / num_workers, sums["steps"])
        episodes = sums["episodes"].astype(jnp.float32)
        return {
            "env_steps": counters.env_steps,
            "episodes": sums["episodes"],
            "return_mean": sums["return"] / episodes,
            "episode_length_mean": sums["length"] / episodes,
            "primal_residual": residuals.primal,
            "dual_residual": residuals.dual,
            "relative_primal_residual": residuals.relative_primal,
            "relative_dual_residual": residuals.relative_dual,
            "scaled_dual_norm": residuals.scaled_dual_norm,
            "update_cosine": residuals.cosine,
            "kl_to_z": sums["kl_to_z"] / num_workers,
            "entropy": steps.loss.entropy,
            "approx_kl": steps.loss.approx_kl,
            "clip_fraction": steps.loss.clip_fraction,
            "policy_loss": steps.loss.policy_loss,
            "value_loss": steps.loss.value_loss,
            "gradient_norm": steps.gradient_norm,
            "lr": lr,
            "failed_workers": residuals.failed.astype(jnp.int32),
        }


def initial_state(
    config: TrainConfig,
    environment: Environment,
    model: Model,
    params: jax.Array,
    mesh: WorkerMesh,
    environment_keys: jax.Array,
) -> TrainState:
    """State before the first round, placed on the mesh.

    Args:
        config: the run.
        environment: with W x E environments.
        model: actor-critic.
        params: of one network, [d]; every worker starts there.
        mesh: where workers live.
        environment_keys: one per environment, [W E].
    """
    exchange = make_exchange(config)
    lr = make_schedule(config)(jnp.zeros(()))
    consensus = exchange.rule.init(params, config.workers, penalty=exchange.initial_penalty(params, lr))
    env_state, first = environment.reset(environment_keys)

    def moments() -> Any:
        tree = model.unravel(params)
        return jax.tree.map(lambda leaf: jnp.zeros((config.workers, *leaf.shape), leaf.dtype), tree)

    state = TrainState(
        consensus=consensus,
        adam=Adam(jnp.zeros(config.workers, jnp.int32), mu=moments(), nu=moments()),
        environment=env_state,
        observation=first.observation.reshape(config.workers, config.envs_per_worker, *first.observation.shape[1:]),
        scores=EpisodeScores.zeros((config.workers, config.envs_per_worker)),
        moments=(
            observations.initial_moments(environment.spec.observation_shape, environment.spec.observation_dtype)
            if config.normalize_observations
            else None
        ),
        counters=Counters(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)),
    )
    return mesh.place(state, STATE_SPECS)


def environment_keys(base: jax.Array, workers: int, envs_per_worker: int) -> jax.Array:
    """First keys of all environments, [W E]; they do not depend on how many workers there are."""
    keys = jax.vmap(lambda worker: jax.random.fold_in(base, worker))(jnp.arange(workers))
    return split_each(keys, envs_per_worker).reshape(-1)
