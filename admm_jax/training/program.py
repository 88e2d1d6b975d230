"""From a config to a compiled round and the state it starts from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from admm_jax.consensus import ConsensusState
from admm_jax.envs import Environment
from admm_jax.parallel import REPLICATED, Stream, WorkerMesh, split_each, stream_key
from admm_jax.rl import observations
from admm_jax.rl.rollout import EpisodeScores
from admm_jax.training.asynchronous_round import AsynchronousRound, initial_server
from admm_jax.training.config import TrainConfig
from admm_jax.training.consensus_round import ConsensusRound, make_exchange
from admm_jax.training.model import Model
from admm_jax.training.round import Metrics, Round
from admm_jax.training.rules import make_schedule
from admm_jax.training.state import STATE_SPECS, Adam, Counters, TrainState

RoundFunction = Callable[[TrainState], tuple[TrainState, Metrics]]


def make_round(config: TrainConfig, environment: Environment, model: Model, mesh: WorkerMesh) -> RoundFunction:
    """One round as one jitted function of the state, which is donated.

    Args:
        config: the run.
        environment: with W x E environments over all devices.
        model: actor-critic on a flat vector of parameters.
        mesh: where workers live.

    Returns:
        (state) -> (state, metrics); metrics are equal on every device, and scalars but for histograms.
    """
    one_round = make_round_on_device(config, environment, model, mesh)
    return jax.jit(
        mesh.on_every_device(one_round, in_specs=(STATE_SPECS,), out_specs=(STATE_SPECS, REPLICATED)),
        donate_argnums=0,
    )


def make_round_on_device(config: TrainConfig, environment: Environment, model: Model, mesh: WorkerMesh) -> Round:
    """One round as a function that runs on every device of a mesh (see `WorkerMesh.on_every_device`)."""
    kind = AsynchronousRound if config.rule == "a3c" else ConsensusRound
    return kind(config, environment, model, mesh)


def initial_state(
    config: TrainConfig, environment: Environment, model: Model, params: jax.Array, mesh: WorkerMesh
) -> TrainState:
    """State before the first round, placed on the mesh.

    Args:
        config: the run.
        environment: with W x E environments.
        model: actor-critic.
        params: of one network, [d]; every worker starts there.
        mesh: where workers live.
    """
    env_state, first = environment.reset(environment_keys(config.seed, config.workers, config.envs_per_worker))

    def moments() -> Any:
        tree = model.unravel(params)
        return jax.tree.map(lambda leaf: jnp.zeros((config.workers, *leaf.shape), leaf.dtype), tree)

    state = TrainState(
        consensus=initial_consensus(config, params),
        adam=Adam(jnp.zeros(config.workers, jnp.int32), moments(), moments()) if config.learns_locally else None,
        environment=env_state,
        observation=first.observation.reshape(config.workers, config.envs_per_worker, *first.observation.shape[1:]),
        scores=EpisodeScores.zeros((config.workers, config.envs_per_worker)),
        moments=(
            observations.initial_moments(environment.spec.observation_shape, environment.spec.observation_dtype)
            if config.normalize_observations
            else None
        ),
        counters=Counters(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)),
        seed=jnp.asarray(config.seed, jnp.int32),
    )
    return mesh.place(state, STATE_SPECS)


def initial_consensus(config: TrainConfig, params: jax.Array) -> ConsensusState:
    """What workers agree through, before the first round; everyone at ``params`` [d]."""
    if config.rule == "a3c":
        return initial_server(config, params)
    exchange = make_exchange(config)
    penalty = exchange.initial_penalty(params, make_schedule(config)(jnp.zeros(())))
    return exchange.rule.init(params, config.workers, penalty=penalty)


def environment_keys(seed: int, workers: int, envs_per_worker: int) -> jax.Array:
    """First keys of all environments, [W E]; they do not depend on how many workers there are."""
    base = stream_key(seed, Stream.ENVIRONMENTS)
    keys = jax.vmap(lambda worker: jax.random.fold_in(base, worker))(jnp.arange(workers))
    return split_each(keys, envs_per_worker).reshape(-1)
