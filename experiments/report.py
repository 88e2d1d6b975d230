"""Draw the page of one or more runs of the same environment.

python experiments/report.py runs/NAME
python experiments/report.py results/pong_admm/s* --curves-only --out results/pong_admm/learning_curve.png
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from admm_jax import cli
from admm_jax.errors import InvalidInput
from admm_jax.training.page import draw_page


@dataclass(frozen=True)
class Flags:
    """Draw the page of one or more runs."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs of one environment."""
    out: Path = Path("page.png")
    """Picture to write."""
    curves_only: bool = False
    """Draw the learning curves alone."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise InvalidInput("runs", (), "at least one folder of a run")
        if self.out.suffix != ".png":
            raise InvalidInput("out", str(self.out), "the name of a .png file")


def main(arguments: Sequence[str]) -> None:
    flags = cli.parse(Flags, arguments)
    draw_page(flags.runs, flags.out, curves_only=flags.curves_only)
    print(flags.out)


if __name__ == "__main__":
    cli.run(main)
