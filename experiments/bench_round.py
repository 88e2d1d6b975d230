"""What a round is made of, and what its parts cost, as ratios measured in one run.

    python experiments/bench_round.py
    python experiments/bench_round.py --json > bench.json

Every figure is the median over repeats that take turns, so that drift of the machine cancels in ratios; compile time is
never part of them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from admm_jax import cli
from admm_jax.errors import at_least
from admm_jax.parallel import (
    SHARDED,
    Stream,
    WorkerMesh,
    fold_each,
    local_workers,
    map_workers,
    stream_key,
    with_fixed_parameters,
    worker_keys,
)
from admm_jax.rl.advantages import generalized_advantages
from admm_jax.rl.losses import Minibatch
from admm_jax.rl.networks import init_parameters, make_network
from admm_jax.training.consensus_round import ConsensusRound
from admm_jax.training.defaults import default_config
from admm_jax.training.evaluation import worker_environments
from admm_jax.training.model import make_model
from admm_jax.training.program import initial_state, make_round
from admm_jax.training.provenance import hardware
from admm_jax.training.rules import spelled_out
from admm_jax.training.state import STATE_SPECS

SHARES = ("rollout", "advantages", "local_steps", "exchange")


@dataclass(frozen=True)
class Flags:
    """Time the parts of a round."""

    env: str = "Pong-v5"
    """Environment of the round, with its default settings."""
    repeats: int = 7
    """Turns of each measurement."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def __post_init__(self) -> None:
        at_least("repeats", self.repeats, 1)


def medians(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each function; they take turns, after one turn each that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            started = time.perf_counter()
            jax.block_until_ready(run())
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def stages(env: str, repeats: int) -> dict[str, float]:
    """Rollout, local steps and exchange alone, against the whole round; seconds, shares and ratios."""
    config = default_config(env)
    mesh = WorkerMesh(config.workers)
    environment = worker_environments(config, config.envs_per_worker, Stream.TRAINING)
    model, params = make_model(config, environment.spec, stream_key(0, Stream.INITIALISATION))
    state = initial_state(config, environment, model, params, mesh)
    parts = ConsensusRound(config, environment, model, mesh)

    def collect(state: Any) -> Any:
        trees = jax.vmap(model.unravel)(state.consensus.workers.theta)
        keys = fold_each(worker_keys(0, local_workers(config.workers), state.consensus.shared.round), 0)
        return parts.collect(trees, state.environment, state.observation, state.scores, state.moments, keys)

    def learn(state: Any, data: Any) -> Any:
        shared, workers = state.consensus
        trees = jax.vmap(model.unravel)(workers.theta)
        keys = fold_each(worker_keys(0, local_workers(config.workers), shared.round), 1)
        views = parts.as_trees(workers, shared)
        return parts.learn(trees, state.adam, *views, data, keys, parts.rate(shared.round), parts.exchange.strength)

    def exchange(state: Any) -> Any:
        rate = parts.rate(state.consensus.shared.round)
        result = parts.exchange(
            state.consensus.workers.theta + state.consensus.shared.z,
            state.adam,
            state.adam.nu,
            state.consensus,
            lr=rate,
            next_lr=rate,
            reduction=parts.reduction,
        )
        return result[0], result[1]

    def compiled(function: Callable, in_specs: Any, out_specs: Any, *arguments: Any) -> Any:
        return jax.jit(mesh.on_every_device(function, in_specs, out_specs)).lower(*arguments).compile()

    consensus_specs = (STATE_SPECS.consensus, SHARDED)
    run_collect = compiled(collect, (STATE_SPECS,), (SHARDED, SHARDED, SHARDED), state)
    data = run_collect(state)[1]
    run_learn = compiled(learn, (STATE_SPECS, SHARDED), SHARDED, state, data)
    alone = _parts_alone(parts, state, data)
    run_exchange = compiled(exchange, (STATE_SPECS,), consensus_specs, state)
    started = time.perf_counter()
    run_round = make_round(config, environment, model, mesh).lower(state).compile()
    compile_seconds = time.perf_counter() - started

    held = [jax.tree.map(jnp.copy, state)]

    def whole() -> Any:
        held[0], metrics = run_round(held[0])
        return metrics

    seconds = medians(
        {
            "rollout": lambda: run_collect(state),
            "local_steps": lambda: run_learn(state, data),
            "exchange": lambda: run_exchange(state),
            "round": whole,
            **alone,
        },
        repeats,
    )
    # Steps/s that a round could reach if it only stepped, evaluated and differentiated, one after the other.
    least = seconds["env_only"] + seconds["forward_only"] + config.local_epochs * seconds["gradient_only"]
    return {
        **{f"{name}_seconds": value for name, value in seconds.items()},
        **{f"{name}_share": seconds[name] / seconds["round"] for name in SHARES},
        "round_over_parts": seconds["round"] / (seconds["rollout"] + seconds["local_steps"]),
        "bound_over_round": least / seconds["round"],
        "env_steps_per_second": config.env_steps_per_round / seconds["round"],
        "compile_seconds": compile_seconds,
    }


def _parts_alone(parts: ConsensusRound, state: Any, data: Minibatch) -> dict[str, Callable[[], Any]]:
    """What a round cannot do without, each alone and compiled: environments, forward passes, gradients of one epoch;
    and the advantages of a rollout."""
    config, environment, model = parts.config, parts.environment, parts.model
    trees = jax.vmap(model.unravel)(state.consensus.workers.theta)
    length, count, workers = config.rollout, environment.num_envs, config.workers

    def step_environments(env_state: Any) -> Any:
        def step(env_state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            action = jax.random.randint(key, (count,), 0, environment.spec.num_actions)
            env_state, outcome = environment.step(env_state, action, jax.random.split(key, count))
            return env_state, outcome.reward.sum()

        return jax.lax.scan(step, env_state, jax.random.split(jax.random.key(1), length))[1]

    observation = data.observation[:, : config.envs_per_worker]

    def forward(trees: Any, observation: jax.Array) -> jax.Array:
        act = with_fixed_parameters(model.network.apply, trees, parts.mapping)

        def step(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            # Each step depends on the one before, or it would be computed once for all.
            logits, value = act(observation + (carry > 1e30).astype(observation.dtype))
            return logits.sum() + value.sum(), None

        return jax.lax.scan(step, jnp.zeros(()), length=length)[0]

    batches = jax.tree.map(lambda leaf: leaf.reshape(workers, config.minibatches, -1, *leaf.shape[2:]), data)

    def gradients_of_an_epoch(trees: Any, batches: Minibatch) -> Any:
        def one_worker(theta: Any, batches: Minibatch) -> Any:
            def step(total: Any, batch: Minibatch) -> tuple[Any, None]:
                return jax.tree.map(jnp.add, total, parts.problem.gradient(theta, batch)[0]), None

            return jax.lax.scan(step, jax.tree.map(jnp.zeros_like, theta), batches)[0]

        return map_workers(one_worker, parts.mapping)(trees, batches)

    shape = (length, workers, config.envs_per_worker)
    key = jax.random.key(2)
    numbers = jax.random.normal(key, shape)
    flags = jax.random.bernoulli(key, 0.01, shape)

    def advantages(numbers: jax.Array, flags: jax.Array) -> Any:
        values = jnp.concatenate([numbers, numbers[:1]])
        return generalized_advantages(numbers, values, flags, flags, ~flags, config.gamma, config.gae_lambda)

    def prepared(function: Callable, *arguments: Any) -> Callable[[], Any]:
        run = jax.jit(function).lower(*arguments).compile()
        return lambda: run(*arguments)

    return {
        "env_only": prepared(step_environments, state.environment),
        "forward_only": prepared(forward, trees, observation),
        "gradient_only": prepared(gradients_of_an_epoch, trees, batches),
        "advantages": prepared(advantages, numbers, flags),
    }


def gradients(repeats: int, workers: int = 4, batch: int = 64, channels: int = 16) -> dict[str, float]:
    """Gradients of an image network with per-worker weights: samples/s, and against vmap of ``lax.conv``."""
    observation = jax.random.randint(jax.random.key(1), (workers, batch, 42, 42, 4), 0, 255).astype(jnp.uint8)

    def prepared(implementation: str, mapping: str) -> Callable[[], Any]:
        network = make_network("article", 6, channels=(channels, channels), implementation=implementation)
        one = init_parameters(network, jax.random.key(0), (42, 42, 4), "uint8")
        parameters = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], workers, axis=0), one)

        def gradient(parameters: Any, observation: jax.Array) -> Any:
            def objective(parameters: Any) -> jax.Array:
                logits, value = network.apply(parameters, observation)
                return (logits**2).mean() + (value**2).mean()

            return jax.grad(objective)(parameters)

        run = jax.jit(map_workers(gradient, mapping)).lower(parameters, observation).compile()
        return lambda: run(parameters, observation)

    names = [("patches", "map"), ("patches", "vmap"), ("lax", "map"), ("lax", "vmap")]
    seconds = medians({f"{kind}_{how}": prepared(kind, how) for kind, how in names}, repeats)
    rates = {f"{name}_samples_per_second": workers * batch / value for name, value in seconds.items()}
    used = "patches_map" if jax.default_backend() == "cpu" else "lax_vmap"
    return rates | {"used_over_vmap_of_lax_conv": seconds["lax_vmap"] / seconds[used]}


def mappings(repeats: int) -> dict[str, float]:
    """map against vmap, by stage and network: seconds of map over seconds of vmap (below 1: map is faster)."""
    ratios = {}
    for kind, shape, dtype, workers in (
        ("article", (42, 42, 4), "uint8", 4),
        ("mlp", (4,), "float32", 8),
        ("mlp", (4,), "float32", 64),
    ):
        channels = (16, 16) if kind == "article" else None
        network = make_network(kind, 6, channels=channels)
        one = init_parameters(network, jax.random.key(0), shape, dtype)
        parameters = jax.tree.map(lambda leaf, w=workers: jnp.repeat(leaf[None], w, axis=0), one)
        few = jnp.ones((workers, 4, *shape), dtype)
        many = jnp.ones((workers, 64, *shape), dtype)

        def act(parameters: Any, observation: jax.Array, mapping: str, network: Any = network) -> Any:
            step = with_fixed_parameters(network.apply, parameters, mapping)

            def body(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
                logits, _value = step(observation + (carry > 1e30).astype(observation.dtype))
                return logits.sum(), None

            return jax.lax.scan(body, jnp.zeros(()), None, length=32)[0]

        def gradient(parameters: Any, observation: jax.Array, mapping: str, network: Any = network) -> Any:
            def one_worker(parameters: Any, observation: jax.Array) -> Any:
                return jax.grad(lambda p: network.apply(p, observation)[1].mean())(parameters)

            return map_workers(one_worker, mapping)(parameters, observation)

        runs = {}
        for stage, function, observation in (("act", act, few), ("gradient", gradient, many)):
            for mapping in ("map", "vmap"):
                run = jax.jit(function, static_argnums=2).lower(parameters, observation, mapping).compile()
                runs[f"{stage}_{mapping}"] = lambda run=run, p=parameters, o=observation: run(p, o)
        seconds = medians(runs, repeats)
        for stage in ("act", "gradient"):
            name = f"{kind}_{workers}_workers_{stage}_map_over_vmap"
            ratios[name] = seconds[f"{stage}_map"] / seconds[f"{stage}_vmap"]
    return ratios


def many_workers(few: int = 8, many: int = 1024) -> dict[str, float]:
    """Compile time and memory of a CartPole round with few and with many workers on one device."""
    figures: dict[str, float] = {}
    for workers in (few, few, many):  # the first one warms up what compiling needs once
        config = spelled_out(replace(default_config("gymnax:CartPole-v1"), workers=workers))
        mesh = WorkerMesh(workers)
        environment = worker_environments(config, config.envs_per_worker, Stream.TRAINING)
        model, params = make_model(config, environment.spec, stream_key(0, Stream.INITIALISATION))
        state = initial_state(config, environment, model, params, mesh)
        step = make_round(config, environment, model, mesh)
        started = time.perf_counter()
        compiled = step.lower(state).compile()
        figures[f"cartpole_{workers}_compile_seconds"] = time.perf_counter() - started
        memory = compiled.memory_analysis()
        used = memory.argument_size_in_bytes + memory.temp_size_in_bytes
        figures[f"cartpole_{workers}_megabytes_per_worker"] = used / workers / 1e6
    return figures | {
        "compile_many_over_few": figures[f"cartpole_{many}_compile_seconds"]
        / figures[f"cartpole_{few}_compile_seconds"],
        "memory_per_worker_many_over_few": figures[f"cartpole_{many}_megabytes_per_worker"]
        / figures[f"cartpole_{few}_megabytes_per_worker"],
    }


def second_start() -> dict[str, float]:
    """Compile seconds of a CartPole run in two fresh processes that share an empty compilation cache."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for name in ("cold", "warm"):
            run_dir = Path(folder) / name
            flags = f"--env gymnax:CartPole-v1 --preset smoke --total-steps 1 --no-progress --run-dir {run_dir}"
            subprocess.run(
                [sys.executable, Path(__file__).with_name("pong_admm.py"), *flags.split()],
                env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "cache")},
                check=True,
                stdout=subprocess.DEVNULL,
            )
            seconds.append(json.loads((run_dir / "summary.json").read_text())["compile_seconds"])
    cold, warm = seconds
    return {"cold_compile_seconds": cold, "warm_compile_seconds": warm, "warm_over_cold": warm / cold}


def main(arguments: Sequence[str]) -> None:
    flags = cli.parse(Flags, arguments)
    result = {
        "hardware": hardware(),
        "round": stages(flags.env, flags.repeats),
        "gradient": gradients(flags.repeats),
        "mapping": mappings(flags.repeats),
        "workers": many_workers(),
        "cache": second_start(),
    }
    if flags.json:
        print(json.dumps(result, indent=2))
        return
    for section, figures in result.items():
        print(section)
        for name, value in figures.items():
            print(f"  {name:45s} {value:.4g}" if isinstance(value, float) else f"  {name:45s} {value}")


if __name__ == "__main__":
    cli.run(main)
