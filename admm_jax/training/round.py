"""What every compiled round is made of: rollouts, advantages, local steps, metrics.

How workers meet is the business of two kinds of round: those of consensus rules (synchronous.py), and those of a
server (asynchronous.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from admm_jax.consensus import ConsensusState, Residuals, Rule, Shared, Workers
from admm_jax.envs import Environment
from admm_jax.parallel import (
    MeshReduction,
    WorkerMesh,
    local_workers,
    map_workers,
    resolve_mapping,
    with_fixed_parameters,
    worker_keys,
)
from admm_jax.rl import distributions, observations
from admm_jax.rl.advantages import generalized_advantages, masked_moments, normalize, standardize
from admm_jax.rl.losses import Minibatch
from admm_jax.rl.observations import ObservationMoments, ShiftedSums
from admm_jax.rl.rollout import EpisodeScores, Trajectory, rollout
from admm_jax.rl.vtrace import Sequences
from admm_jax.training.config import TrainConfig
from admm_jax.training.local_solve import LocalProblem, StepMetrics, minibatch_indices, solve_locally
from admm_jax.training.model import Model
from admm_jax.training.rules import make_loss, make_schedule
from admm_jax.training.state import Adam, Counters, TrainState

KL_OBSERVATIONS = 64
"""Observations per worker on which its policy is compared with that of z."""

Metrics = dict[str, jax.Array]


class Outcome(NamedTuple):
    """What playing, learning and meeting have come to; R rollouts.

    Attributes:
        consensus, adam: to start the next round with.
        games: state of the environments, next observation [W, E, *obs], scores.
        policies: the workers' own parameters before they met, trees with leaves [W, ...].
        steps: metrics of the local steps, leaves [R, W].
        valid: transitions, int32 [R, W].
        seen: what the observations add to the moments, leaves [R, W, ...], or None.
        samples: observations on which policies are compared, [W, B, *obs].
        residuals: of the meeting.
        extra: metrics that only this kind of round has.
    """

    consensus: ConsensusState
    adam: Adam | None
    games: tuple[Any, jax.Array, EpisodeScores]
    policies: Any
    steps: StepMetrics
    valid: jax.Array
    seen: ShiftedSums | None
    samples: jax.Array
    residuals: Residuals
    extra: Metrics


class Round:
    """What one device does in a round, for its own share W of the workers.

    Args:
        config: the run.
        environment: with W x E environments over all devices.
        model: actor-critic.
        mesh: where workers live.
        local_rule: what local steps see of the consensus.
    """

    def __init__(
        self, config: TrainConfig, environment: Environment, model: Model, mesh: WorkerMesh, local_rule: Rule
    ) -> None:
        self.config = config
        self.environment = environment
        self.mesh = mesh
        self.model = model
        self.reduction = MeshReduction()
        self.mapping = resolve_mapping(
            config.worker_mapping, convolutional=config.network != "mlp", platform=jax.default_backend()
        )
        loss = make_loss(config)
        self.problem = LocalProblem(
            model.network.apply,
            loss,
            local_rule,
            config.max_grad_norm,
            config.adam_eps,
            normalize_minibatch=config.normalize_advantages == "minibatch" and not loss.sequences,
        )

    def __call__(self, state: TrainState) -> tuple[TrainState, Metrics]:
        round_index = state.consensus.shared.round
        keys = worker_keys(state.seed, local_workers(self.mesh.workers_per_device), round_index)
        lr = self.rate(round_index)

        outcome = self.play_and_meet(state, keys, lr)
        environment, observation, scores = outcome.games
        entropy = outcome.steps.loss.entropy.mean(axis=0)
        sums = self.reduction.sum(
            {
                "valid": outcome.valid.sum(axis=0),
                "kl_to_z": self.divergence_from_consensus(
                    outcome.policies, outcome.consensus.shared.z, outcome.samples
                ),
                "steps": jax.tree.map(lambda x: x.mean(axis=0), outcome.steps),
                "entropy_squared": jnp.square(entropy),
                "return": scores.finished.sum(axis=1),
                "length": scores.finished_length.sum(axis=1),
                "episodes": scores.count.sum(axis=1),
                "seen": jax.tree.map(lambda x: x.sum(axis=0), outcome.seen),
            }
        )
        moments = None if state.moments is None else observations.merge(state.moments, sums["seen"])
        counters = Counters(state.counters.env_steps + sums["valid"], state.counters.episodes + sums["episodes"])
        metrics = self.metrics(sums, outcome.residuals, counters, lr) | outcome.extra
        following = TrainState(
            outcome.consensus, outcome.adam, environment, observation, scores.cleared(), moments, counters, state.seed
        )
        return following, metrics

    def play_and_meet(self, state: TrainState, keys: jax.Array, lr: jax.Array) -> Outcome:
        """Everything in which kinds of rounds differ.

        Args:
            state: before the round.
            keys: one per worker, [W].
            lr: learning rate of the round.
        """
        raise NotImplementedError

    def rate(self, round_index: jax.Array) -> jax.Array:
        """Learning rate of a round."""
        return make_schedule(self.config)(round_index.astype(jnp.float32) * self.config.env_steps_per_round)

    def collect(
        self,
        theta: Any,
        env_state: Any,
        observation: jax.Array,
        scores: EpisodeScores,
        moments: ObservationMoments | None,
        keys: jax.Array,
    ) -> tuple[tuple[Any, jax.Array, EpisodeScores], Minibatch | Sequences, ShiftedSums | None]:
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
        data = self.learning_data(trajectory, observation, last_value)
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
        strength: jax.Array,
    ) -> tuple[Any, Adam, StepMetrics]:
        """The local epochs on one rollout."""
        return solve_locally(
            self.problem,
            theta,
            adam,
            workers,
            shared,
            data,
            self.minibatches(keys, data),
            lr=lr,
            strength=strength,
            mapping=self.mapping,
            reduction=self.reduction,
        )

    def minibatches(self, keys: jax.Array, data: Minibatch | Sequences) -> jax.Array:
        """Which steps each optimiser step learns from, int32 [W, steps, minibatch]."""
        config, batch = self.config, data.action.shape[1]
        if not self.problem.loss.sequences:
            return minibatch_indices(keys, config.local_epochs, config.minibatches, batch)
        environments = minibatch_indices(keys, config.local_epochs, config.minibatches, config.envs_per_worker)
        first = jnp.arange(0, batch, config.envs_per_worker)
        whole = first[:, None] + environments[..., None, :]
        return whole.reshape(*environments.shape[:-1], -1)

    def learning_data(
        self, trajectory: Trajectory, last_observation: jax.Array, last_value: jax.Array
    ) -> Minibatch | Sequences:
        """What the loss learns from, one flat batch per worker and time first: leaves [T, W, E, ...] -> [W, B, ...]."""
        if self.problem.loss.sequences:
            return self.sequences(trajectory, last_observation)
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
        data = Minibatch(
            observation=_flat(trajectory.observation),
            action=_flat(trajectory.action),
            log_prob=_flat(trajectory.log_prob),
            value=_flat(trajectory.value),
            advantage=_flat(advantage),
            target=_flat(target),
            valid=_flat(trajectory.valid),
        )
        return data._replace(advantage=self.normalized(data.advantage, data.valid))

    def sequences(self, trajectory: Trajectory, last_observation: jax.Array) -> Sequences:
        """Rollouts and what is observed after them, B = (T + 1) E."""
        last = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[:1]), trajectory)._replace(
            observation=last_observation[None]
        )
        rows = jax.tree.map(lambda first, second: _flat(jnp.concatenate([first, second])), trajectory, last)
        return Sequences(**{name: getattr(rows, name) for name in Sequences._fields})

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
            "entropy_spread": jnp.sqrt(jnp.maximum(sums["entropy_squared"] / num_workers - steps.loss.entropy**2, 0)),
            "approx_kl": steps.loss.approx_kl,
            "clip_fraction": steps.loss.clip_fraction,
            "policy_loss": steps.loss.policy_loss,
            "value_loss": steps.loss.value_loss,
            "gradient_norm": steps.gradient_norm,
            "lr": lr,
            "failed_workers": residuals.failed.astype(jnp.int32),
        }


def _flat(leaf: jax.Array) -> jax.Array:
    """[T, W, E, ...] -> [W, T E, ...]."""
    leaf = jnp.moveaxis(leaf, 1, 0)
    return leaf.reshape(leaf.shape[0], -1, *leaf.shape[3:])


def valid_steps(data: Minibatch | Sequences) -> jax.Array:
    """Transitions of each worker, int32 [W]."""
    return data.valid.sum(axis=1, dtype=jnp.int32)


def sample_of(data: Minibatch | Sequences) -> jax.Array:
    """Up to `KL_OBSERVATIONS` observations of each worker, evenly spread over its batch."""
    stride = max(1, data.action.shape[1] // KL_OBSERVATIONS)
    return data.observation[:, ::stride][:, :KL_OBSERVATIONS]
