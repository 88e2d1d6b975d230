"""Train algorithms side by side and report on them.

python experiments/compare_algorithms.py --suite quick
python experiments/compare_algorithms.py --suite heterogeneous --rules admm fedavg --seeds 10 --out results/compare

Runs that are in the results already are not repeated; Ctrl-C loses the running call at most.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from admm_jax import cli
from admm_jax.comparison import SUITES, Results
from admm_jax.comparison.report import write_report
from admm_jax.comparison.runner import key, run_cell
from admm_jax.errors import InvalidInput, at_least, finite, one_of


@dataclass(frozen=True)
class Flags:
    """Algorithms side by side."""

    suite: str = "quick"
    """quick, cartpole, heterogeneous, minatar, jax-pong or atari-pong."""
    rules: tuple[str, ...] = ()
    """Rules to compare. [default: those of the suite]"""
    losses: tuple[str, ...] = ()
    """Losses to compare. [default: those of the suite]"""
    variants: tuple[str, ...] = ()
    """Variants to compare, as the report names them. [default: all of the suite]"""
    seeds: int | None = None
    """Seeds of each algorithm. [default: those of the suite]"""
    first_seed: int = 0
    """The first of them."""
    workers: int | None = None
    """Workers. [default: those of the environment]"""
    spread: float | None = None
    """How far apart workers' physics are. [default: that of the suite]"""
    seeds_per_call: int = 10
    """Seeds that one compiled program trains; fewer need less memory."""
    out: Path = Path("runs/compare")
    """Folder of the results: results.jsonl, report.md and pictures."""
    report_only: bool = False
    """Write the report on what is there, train nothing."""

    def __post_init__(self) -> None:
        one_of("suite", self.suite, tuple(SUITES))
        if self.seeds is not None:
            at_least("seeds", self.seeds, 1)
        at_least("first_seed", self.first_seed, 0)
        at_least("seeds_per_call", self.seeds_per_call, 1)
        if self.spread is not None:
            finite("spread", self.spread, low=0)
        # Commas are as good as spaces.
        for name in ("rules", "losses"):
            object.__setattr__(self, name, tuple(part for text in getattr(self, name) for part in text.split(",")))


def compare(flags: Flags) -> None:
    suite, results = SUITES[flags.suite], Results(flags.out)
    seeds = range(flags.first_seed, flags.first_seed + (flags.seeds or suite.seeds))
    cells = suite.chosen(flags.rules, flags.losses)
    if not cells:
        raise InvalidInput("losses", flags.losses, f"ones that suite {flags.suite} has, or together with rules")
    for variant in flags.variants:
        one_of("variants", variant, sorted({cell.variant for cell in cells}))
    cells = tuple(cell for cell in cells if not flags.variants or cell.variant in flags.variants)
    configs = {cell: suite.config(cell, flags.workers, flags.spread) for cell in cells}  # refuses what does not fit
    if flags.report_only and not results.rows:
        raise InvalidInput("out", str(flags.out), "a folder with results, to report on them")
    for cell, config in configs.items() if not flags.report_only else ():
        missing = [seed for seed in seeds if not results.has(key(config, suite.plan_of(cell), seed))]
        print(f"{cell.label}: {len(seeds) - len(missing)} of {len(seeds)} seeds are there", flush=True)
        calls = [missing[i : i + flags.seeds_per_call] for i in range(0, len(missing), flags.seeds_per_call)]
        for some in calls:
            say = lambda text: print(f"  {text}", flush=True)  # noqa: E731
            results.add(run_cell(flags.suite, suite, cell, config, some, flags.out / "runs", say))
            write_report(results)
    print(f"report in {write_report(results)}")


def main(arguments: Sequence[str]) -> None:
    flags = cli.parse(Flags, arguments)
    try:
        compare(flags)
    except KeyboardInterrupt:
        print(f"stopped; finished runs are in {flags.out}, call again to go on", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    cli.run(main)
