"""Pictures of finished and running runs, from what lies in their folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from admm_jax.analysis.baselines import BASELINES
from admm_jax.analysis.figures import Rows, learning_curves, run_page
from admm_jax.errors import InvalidInput
from admm_jax.training.run_folder import read_config, read_rows


def draw_page(folders: Sequence[Path], path: Path, *, curves_only: bool = False) -> None:
    """Draw runs of one environment together.

    Args:
        folders: of the runs, at least one.
        path: PNG to write.
        curves_only: draw the learning curves alone.

    Raises:
        InvalidInput: a folder holds no run, or the runs are of several environments.
    """
    configs = {folder: read_config(folder)["train"] for folder in folders}
    envs = sorted({config["env"] for config in configs.values()})
    if len(envs) != 1:
        raise InvalidInput("runs", envs, "runs of one environment, at least one")
    rows = {
        _label(config, folder, folders): Rows(
            read_rows(folder / "metrics.jsonl"), read_rows(folder / "evaluations.jsonl")
        )
        for folder, config in configs.items()
    }
    draw = learning_curves if curves_only else run_page
    draw(rows, BASELINES.get(envs[0], {}), envs[0], path)


def _label(config: dict, folder: Path, folders: Sequence[Path]) -> str:
    label = f"{config['rule']}, {config['workers']} workers, seed {config['seed']}"
    return label if len(folders) == 1 else f"{folder.name}: {label}"
