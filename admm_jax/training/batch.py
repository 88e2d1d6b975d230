"""Many seeds of one run in one compiled program, for comparisons.

Seeds follow one another inside the program (`jax.lax.map`): on CPU that is as fast as runs of their own, where a
batched axis (`vmap`) is slower, and compiling is paid once. What each seed learns is what a run of its own would
(to rounding).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from admm_jax.analysis.ledger import Ledger
from admm_jax.errors import InvalidInput
from admm_jax.parallel import Stream, WorkerMesh, stream_key
from admm_jax.training import rules
from admm_jax.training.config import TrainConfig
from admm_jax.training.evaluation import Evaluator, Scores, worker_environments
from admm_jax.training.ledger import make_ledger
from admm_jax.training.model import make_model
from admm_jax.training.policy import Weights
from admm_jax.training.program import initial_state, make_round_on_device
from admm_jax.training.state import STATE_SPECS, TrainState


class Plan(NamedTuple):
    """How long, and when to look.

    Attributes:
        total_steps: environment calls of all workers together; whole rounds, the last one may end beyond.
        eval_every: calls between evaluations; there is one at the end in any case.
        eval_episodes, final_episodes: games of an evaluation on the way, and of the last one.
        greedy: evaluate the most probable actions instead of sampled ones.
    """

    total_steps: int
    eval_every: int
    eval_episodes: int = 10
    final_episodes: int = 30
    greedy: bool = False

    def rounds(self, config: TrainConfig) -> int:
        """Rounds in all."""
        return -(-self.total_steps // config.env_steps_per_round)

    def evaluation_rounds(self, config: TrainConfig) -> list[int]:
        """Rounds after which z is evaluated: the first to reach each multiple of ``eval_every``, and the last."""
        last, each = self.rounds(config), config.env_steps_per_round
        marks = range(self.eval_every, self.total_steps, self.eval_every)
        return sorted({-(-mark // each) for mark in marks} | {last})


class Evaluated(NamedTuple):
    """z after a number of rounds."""

    round: int
    env_steps: int
    scores: Scores


class SeedRun(NamedTuple):
    """What came of one seed.

    Attributes:
        seed: its number.
        evaluations: of z, in order; the last one is the result.
        metrics: of each round, by name: [rounds] (histograms [rounds, bins]).
    """

    seed: int
    evaluations: list[Evaluated]
    metrics: dict[str, np.ndarray]


class Trained(NamedTuple):
    """What came of all seeds.

    Attributes:
        runs: one per seed, in the order asked for.
        ledger: what the workers of each told each other.
        seconds_per_round: of one seed (median over rounds).
        compile_seconds: once for all of them.
    """

    runs: list[SeedRun]
    ledger: Ledger
    seconds_per_round: float
    compile_seconds: float


def train_seeds(
    config: TrainConfig, seeds: Sequence[int], plan: Plan, say: Callable[[str], None] = lambda text: None
) -> Trained:
    """Train one run with several seeds.

    Args:
        config: the run; its own seed does not count.
        seeds: at least one, all different.
        plan: how long.
        say: told about progress.

    Raises:
        InvalidInput: no seed or the same one twice, or environments that cannot be part of a state.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise InvalidInput("seeds", list(seeds), "at least one, and all different")
    config = rules.spelled_out(config)
    mesh = WorkerMesh(config.workers)
    environment = worker_environments(config, config.envs_per_worker, Stream.TRAINING)
    if not environment.spec.resumable:
        raise InvalidInput("env", config.env, "one written in JAX; others train one seed at a time")

    states = []
    for seed in seeds:
        own = replace(config, seed=seed)
        model, params = make_model(own, environment.spec, stream_key(seed, Stream.INITIALISATION))
        states.append(initial_state(own, environment, model, params, mesh))
    state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    evaluate = Evaluator(config, model, plan.greedy)

    step = _all_seeds(make_round_on_device(config, environment, model, mesh), mesh)
    started = time.monotonic()
    compiled = step.lower(state).compile()
    compile_seconds = time.monotonic() - started
    say(f"compiled in {compile_seconds:.1f} s")
    seconds: list[float] = []
    rows: list[dict[str, np.ndarray]] = []
    evaluations: dict[int, list[Evaluated]] = {seed: [] for seed in seeds}
    look_at = plan.evaluation_rounds(config)
    for number in range(1, plan.rounds(config) + 1):
        started = time.monotonic()
        state, metrics = compiled(state)
        rows.append(jax.device_get(metrics))
        seconds.append(time.monotonic() - started)
        if number not in look_at:
            continue
        episodes = plan.final_episodes if number == look_at[-1] else plan.eval_episodes
        for index, seed in enumerate(seeds):
            one = jax.tree.map(lambda leaf, index=index: leaf[index], (state.consensus.shared.z, state.moments))
            scores = evaluate(Weights(*one), episodes, number, seed=seed)
            evaluations[seed].append(Evaluated(number, int(rows[-1]["env_steps"][index]), scores))
        mean = np.mean([evaluations[seed][-1].scores.mean for seed in seeds])
        say(f"round {number}: z scores {mean:.2f} (mean of {len(seeds)} seeds)")
    together = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
    runs = [
        SeedRun(seed, evaluations[seed], {name: values[index] for name, values in together.items()})
        for index, seed in enumerate(seeds)
    ]
    ledger = make_ledger(config, model.size, environment.spec)
    return Trained(runs, ledger, float(np.median(seconds)) / len(seeds), compile_seconds)


def _all_seeds(one_round: Callable[[TrainState], Any], mesh: WorkerMesh) -> Any:
    """The round of states with a leading axis of seeds, jitted; the states are donated."""
    specs = jax.tree.map(
        lambda spec: PartitionSpec(None, *spec), STATE_SPECS, is_leaf=lambda leaf: isinstance(leaf, PartitionSpec)
    )
    everywhere = mesh.on_every_device(
        lambda states: jax.lax.map(one_round, states), in_specs=(specs,), out_specs=(specs, PartitionSpec())
    )
    return jax.jit(everywhere, donate_argnums=0)
