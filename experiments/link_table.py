"""How long workers wait for the network, by model: A3C that pushes every few steps, ADMM that exchanges once a round.

python experiments/link_table.py
python experiments/link_table.py --workers 64 --parameters 9155 --step-seconds 1e-4 --json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from admm_jax import cli
from admm_jax.analysis.ledger import TOPOLOGIES, mean_of
from admm_jax.analysis.links import LINKS, Link, meeting_rounds, pushing
from admm_jax.errors import at_least, finite

PUSHES = 200
"""Of each worker, after which the simulated server is in its stride."""


@dataclass(frozen=True)
class Flags:
    """Waiting shares by link, worker count and rollout length."""

    workers: tuple[int, ...] = (4, 16, 64)
    """Numbers of workers."""
    parameters: int = 500_583
    """Numbers per message, d. [the default network on Pong]"""
    step_seconds: float = 3.2e-4
    """Seconds that one worker computes per environment step, acting and learning. [Pong on two CPU cores: 0.65 s for
    2,048 steps of four workers]"""
    slowest: float = 1.0
    """How many times longer the slowest worker computes than the fastest; the others lie evenly between."""
    t_max: tuple[int, ...] = (5, 20)
    """Steps between two pushes of an A3C worker."""
    fetch_every: int = 5
    """Pushes between two fetches."""
    round_steps: int = 512
    """Steps of one ADMM worker between two exchanges."""
    json: bool = False
    """Print one JSON object instead of tables."""

    def __post_init__(self) -> None:
        for name in ("workers", "t_max"):
            for value in getattr(self, name):
                at_least(name, value, 1)
        for name in ("parameters", "fetch_every", "round_steps"):
            at_least(name, getattr(self, name), 1)
        finite("step_seconds", self.step_seconds, above=0)
        finite("slowest", self.slowest, low=1)

    def compute(self, workers: int, steps: int) -> list[float]:
        """Seconds that each worker computes for so many environment steps, [W]."""
        return [float(factor) * steps * self.step_seconds for factor in np.linspace(1, self.slowest, workers)]


def a3c_share(flags: Flags, workers: int, t_max: int, link: Link) -> float:
    """Waiting share of A3C's workers."""
    compute = flags.compute(workers, t_max)
    return pushing(flags.parameters, compute, PUSHES, flags.fetch_every, link).waiting_share


def admm_share(flags: Flags, workers: int, link: Link, topology: str) -> float:
    """Waiting share of ADMM's workers, who exchange parameters and second moments."""
    compute = flags.compute(workers, flags.round_steps)
    return meeting_rounds([2 * flags.parameters], compute, 1, link, topology).waiting_share


def bandwidth_for(flags: Flags, workers: int, t_max: int, share: float = 0.9, latency: float = 1e-5) -> float:
    """Bits per second below which A3C waits at least ``share`` of its time; by bisection."""
    low, high = 3.0, 15.0  # powers of ten
    for _ in range(40):
        middle = (low + high) / 2
        waits = a3c_share(flags, workers, t_max, Link(latency, 10**middle)) >= share
        low, high = (middle, high) if waits else (low, middle)
    return 10**low


def _steps_per_second(flags: Flags, workers: int, waiting_share: float) -> float:
    """Environment steps per second of all workers together, who compute for the rest of their time."""
    return (1 - waiting_share) * sum(1 / seconds for seconds in flags.compute(workers, 1))


def table(flags: Flags) -> dict[str, object]:
    waiting = []
    for workers in flags.workers:
        for name, link in LINKS.items():
            row: dict[str, object] = {"workers": workers, "link": name}
            row |= {f"a3c_t_max_{t}": a3c_share(flags, workers, t, link) for t in flags.t_max}
            row |= {f"admm_{topology}": admm_share(flags, workers, link, topology) for topology in ("server", "ring")}
            waiting.append(row)
    speeds = [
        {
            name: _steps_per_second(flags, row["workers"], value) if isinstance(value, float) else value
            for name, value in row.items()
        }
        for row in waiting
    ]
    thresholds = [
        {"workers": workers, "t_max": t, "gigabits_per_second": bandwidth_for(flags, workers, t) / 1e9}
        for workers in flags.workers
        for t in flags.t_max
    ]
    traffic = [
        {"workers": workers}
        | {f"{t}_megabytes": mean_of(2 * flags.parameters, workers, t).total / 1e6 for t in TOPOLOGIES}
        for workers in flags.workers
    ]
    return {
        "waiting_share": waiting,
        "steps_per_second": speeds,
        "a3c_waits_90_percent_below": thresholds,
        "admm_traffic_per_round": traffic,
    }


def main(arguments: Sequence[str]) -> None:
    flags = cli.parse(Flags, arguments)
    result = table(flags)
    if flags.json:
        print(json.dumps(result))
        return
    for title, rows in result.items():
        print(f"\n{title.replace('_', ' ')}\n")
        print("| " + " | ".join(name.replace("_", " ") for name in rows[0]) + " |")
        print("|" + "---|" * len(rows[0]))
        for row in rows:
            print("| " + " | ".join(_shown(title, value) for value in row.values()) + " |")


def _shown(title: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1%}" if title == "waiting_share" else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


if __name__ == "__main__":
    cli.run(main)
