"""Draw the learning curves of one or more runs of the same environment.

python experiments/report.py results/pong_admm/s0 --out results/pong_admm/learning_curve.png
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from admm_jax import cli
from admm_jax.analysis.figures import learning_curves
from admm_jax.errors import InvalidInput
from admm_jax.training.run_folder import read_config, read_rows

BASELINES = {
    "Pong-v5": {"doing nothing": -21.0, "random actions": -20.2},
    "jax-pong": {"doing nothing": -19.2, "random actions": -19.4},
    "gymnax:CartPole-v1": {"doing nothing": 9.1, "random actions": 20.1},
}
"""As `experiments/baseline_scores.py` measures them, 30 games, seed 0."""


@dataclass(frozen=True)
class Flags:
    """Draw learning curves."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs."""
    out: Path = Path("learning_curve.png")
    """Picture to write."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise InvalidInput("runs", (), "at least one folder of a run")


def main(arguments: Sequence[str]) -> None:
    flags = cli.parse(Flags, arguments)
    configs = {folder: read_config(folder)["train"] for folder in flags.runs}
    envs = {config["env"] for config in configs.values()}
    if len(envs) > 1:
        raise InvalidInput("runs", sorted(envs), "runs of one environment")
    env = envs.pop()
    rows = {
        f"{config['rule']}, {config['workers']} workers, seed {config['seed']}": (
            read_rows(folder / "metrics.jsonl"),
            read_rows(folder / "evaluations.jsonl"),
        )
        for folder, config in configs.items()
    }
    learning_curves(rows, BASELINES.get(env, {}), env, flags.out)
    print(flags.out)


if __name__ == "__main__":
    cli.run(main)
