"""From a cell and its seeds to rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from admm_jax.analysis.ledger import Ledger
from admm_jax.analysis.links import LINKS, Timing, meeting_rounds, pushing
from admm_jax.analysis.statistics import oscillation
from admm_jax.comparison.results import key_of
from admm_jax.comparison.suites import Cell, Suite
from admm_jax.training.batch import Evaluated, Plan, SeedRun, train_seeds
from admm_jax.training.config import TrainConfig
from admm_jax.training.evaluation import Scores
from admm_jax.training.options import RunOptions
from admm_jax.training.run_folder import read_rows
from admm_jax.training.trainer import Trainer

OSCILLATION_WINDOW = 20
"""Rounds in which episodes ended."""
SIMULATED_PUSHES = 400
"""Pushes of each worker after which the simulated server is in its stride."""


def key(config: TrainConfig, plan: Plan, seed: int) -> str:
    """Identifies a run."""
    return key_of(replace(config, seed=seed).to_json(), plan._asdict())


def run_cell(
    name: str,
    suite: Suite,
    cell: Cell,
    config: TrainConfig,
    seeds: Sequence[int],
    folder: Path,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Train a cell with several seeds.

    Args:
        name: of the suite.
        suite, cell, config: what to train.
        seeds: at least one.
        folder: for runs that are trained one at a time.
        say: told about progress.

    Returns:
        A row per seed.
    """
    if config.family == "atari":
        trained = [_in_a_folder(config, suite.plan_of(cell), seed, folder) for seed in seeds]
    else:
        together = train_seeds(config, seeds, suite.plan_of(cell), say)
        trained = [(run, together.ledger, together.seconds_per_round) for run in together.runs]
    return [_row(name, suite, cell, config, *one) for one in trained]


def _in_a_folder(config: TrainConfig, plan: Plan, seed: int, folder: Path) -> tuple[SeedRun, Ledger, float]:
    """Emulators cannot be part of a state: a run of its own, in a folder of its own, gone on with if it is there."""
    config = replace(config, seed=seed)
    path = folder / f"{config.rule}-{config.loss}-s{seed}-{key(config, plan, seed)}"
    begun = any((path / "checkpoints").glob("[0-9]*"))
    options = RunOptions(
        total_steps=plan.total_steps,
        eval_every=plan.eval_every,
        eval_episodes=plan.eval_episodes,
        final_episodes=plan.final_episodes,
        greedy=plan.greedy,
        gif=False,
        progress=False,
        **({"resume": path} if begun else {"run_dir": path}),
    )
    trainer = Trainer(config, options)
    summary = trainer.run()
    rows = read_rows(path / "metrics.jsonl")
    metrics = {
        name: np.array([row[name] if row[name] is not None else np.nan for row in rows], float) for name in rows[-1]
    }
    evaluations = [
        Evaluated(
            row["round"],
            row["env_steps"],
            Scores(
                row["eval_return_mean"],
                tuple(row["eval_return_ci95"]),
                row["eval_episodes"],
                row["unfinished"],
                row["mean_length"],
                row["returns"],
            ),
        )
        for row in read_rows(path / "evaluations.jsonl")
    ]
    return SeedRun(seed, evaluations, metrics), trainer.ledger, trainer.totals.round_seconds / summary["rounds"]


def _row(
    name: str, suite: Suite, cell: Cell, config: TrainConfig, run: SeedRun, ledger: Ledger, seconds: float
) -> dict[str, Any]:
    final = run.evaluations[-1]
    rounds, metrics = final.round, run.metrics
    target = suite.target if cell.target is None else cell.target
    reached = [e.env_steps for e in run.evaluations if e.scores.mean >= target]
    timings = {link: simulated(ledger, rounds, seconds / config.workers, link) for link in LINKS}
    traffic = ledger.traffic(rounds)
    return {
        "key": key(config, suite.plan_of(cell), run.seed),
        "suite": name,
        "rule": cell.rule,
        "loss": cell.loss,
        "variant": cell.variant,
        "env": config.env,
        "seed": run.seed,
        "workers": config.workers,
        "env_steps": final.env_steps,
        "local_steps": rounds * config.steps_per_round,
        "rounds": rounds,
        "exchanges": len(ledger.exchanged(0)) * rounds if not ledger.fetch_every else rounds * ledger.pushes_per_round,
        "bytes_sent_per_worker": sum(ledger.uplink_bytes(index) for index in range(rounds)),
        "bytes_received_per_worker": traffic.down,
        "compute_seconds_per_round": seconds / config.workers,
        "simulated_seconds": {link: timing.seconds for link, timing in timings.items()},
        "waiting_share": {link: timing.waiting_share for link, timing in timings.items()},
        "eval_return_mean": final.scores.mean,
        "eval_return_worst_worker": final.scores.worst_worker_mean,
        "steps_to_target": reached[0] if reached else None,
        "curve": [[e.round, e.env_steps, e.scores.mean, e.scores.worst_worker_mean] for e in run.evaluations],
        "update_cosine": float(np.mean(metrics["update_cosine"])),
        "kl_to_z": float(np.mean(metrics["kl_to_z"])),
        "entropy": float(np.mean(metrics["entropy"])),
        "entropy_spread": float(np.mean(metrics["entropy_spread"])),
        "oscillation": oscillation(metrics["return_mean"], OSCILLATION_WINDOW),
        "staleness_mean": float(np.mean(metrics["staleness_mean"])) if "staleness_mean" in metrics else 0.0,
        "staleness_histogram": (
            metrics["staleness_histogram"].sum(axis=0).tolist() if "staleness_histogram" in metrics else None
        ),
        "failed_updates": int(np.sum(metrics["failed_workers"])),
        "config": replace(config, seed=run.seed).to_json(),
    }


def simulated(ledger: Ledger, rounds: int, compute: float, link: str) -> Timing:
    """Time of a run whose workers have a machine each and talk to a server over a link.

    Args:
        ledger: what they send.
        rounds: how many.
        compute: seconds that a worker computes in a round.
        link: name of a link.
    """
    if not ledger.fetch_every:
        period = max(ledger.share_moment_every, 1)
        each = [
            meeting_rounds(ledger.exchanged(index), [compute] * ledger.workers, 1, LINKS[link])
            for index in range(period)
        ]
        return Timing(
            rounds * float(np.mean([timing.seconds for timing in each])),
            float(np.mean([timing.waiting_share for timing in each])),
        )
    pushes = rounds * ledger.pushes_per_round
    between = compute / ledger.pushes_per_round
    some = pushing(
        ledger.parameters, [between] * ledger.workers, min(pushes, SIMULATED_PUSHES), ledger.fetch_every, LINKS[link]
    )
    return Timing(some.seconds * pushes / min(pushes, SIMULATED_PUSHES), some.waiting_share)
