"""Search settings of the main job within a stated time: trials one after the other, each in a run folder of its own.

python experiments/tune.py --budget-minutes 120 --steps 400000 --vary lr=2.5e-4,1e-3 kappa=0.1,1 --out runs/tune
python experiments/tune.py --search random --trials 20 --vary lr=2.5e-4,5e-4,1e-3 gamma=0.99,0.995 --out runs/random

Called again with the same --out it goes on where it stopped: finished trials are not repeated, an interrupted one is
resumed. table.md in that folder ranks what is there, results.jsonl holds the same for programs.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from admm_jax import cli
from admm_jax.errors import InvalidInput, at_least, finite, nearest
from admm_jax.training.command_line import parse_run
from admm_jax.training.config import TrainConfig
from admm_jax.training.run_folder import read_rows

Setting = tuple[tuple[str, str], ...]
"""Pairs of a config field and its value as a flag takes it; the empty setting is the default run."""


@dataclass(frozen=True)
class Flags:
    """Search settings of the main job."""

    vary: tuple[str, ...]
    """Settings to try, each FIELD=VALUE,VALUE..., a field of the main job's config."""
    env: str = TrainConfig.env
    """Environment."""
    search: Literal["one-at-a-time", "grid", "random"] = "one-at-a-time"
    """One change of the defaults at a time, all combinations, or random combinations."""
    trials: int = 10
    """Combinations that a random search draws."""
    steps: int = 400_000
    """Agent steps of each trial."""
    seeds: int = 1
    """Seeds of each setting, from 0."""
    budget_minutes: float = 60.0
    """Training time of all trials together; one that would not fit any more is not started."""
    eval_every: int = 100_000
    """Agent steps between evaluations."""
    out: Path = Path("runs/tune")
    """Folder of the search."""

    def __post_init__(self) -> None:
        if not self.vary:
            raise InvalidInput("vary", (), "at least one FIELD=VALUE,VALUE...")
        for name in ("trials", "steps", "seeds", "eval_every"):
            at_least(name, getattr(self, name), 1)
        finite("budget_minutes", self.budget_minutes, above=0)
        known = [field.name for field in fields(TrainConfig) if field.name not in ("env", "seed")]
        for name, values in self.choices.items():
            if name not in known:
                hint = "".join(f"; nearest: {close}" for close in nearest(name, known, 1))
                raise InvalidInput("vary", name, f"a setting of the main job{hint}")
            if not all(values):
                raise InvalidInput("vary", name, "FIELD=VALUE,VALUE... without empty values")
        for setting in settings(self):
            parse_run(trial_flags(self, setting, seed=0), "")  # refuses what does not fit, before anything runs

    @property
    def choices(self) -> dict[str, list[str]]:
        """Values to try by field."""
        pairs = [entry.partition("=") for entry in self.vary]
        return {name.replace("-", "_"): values.split(",") for name, _, values in pairs}


def settings(flags: Flags) -> Iterator[Setting]:
    """All settings of a search, the default run first."""
    yield ()
    named = [[(name, value) for value in values] for name, values in flags.choices.items()]
    if flags.search == "one-at-a-time":
        yield from ((pair,) for pairs in named for pair in pairs)
        return
    combinations = list(itertools.product(*named))
    if flags.search == "random":
        combinations = random.Random(0).sample(combinations, min(flags.trials, len(combinations)))
    yield from combinations


def trial_flags(flags: Flags, setting: Setting, seed: int) -> list[str]:
    """The main job's flags for a trial, without its folder."""
    given = [part for name, value in setting for part in flag(name, value)]
    common = f"--env {flags.env} --seed {seed} --total-steps {flags.steps} --eval-every {flags.eval_every}"
    return [*common.split(), "--no-progress", "--no-gif", *given]


def flag(name: str, value: str) -> list[str]:
    """A setting as command-line arguments: switches become --x and --no-x, spaces separate several numbers."""
    option = name.replace("_", "-")
    if value.lower() in ("true", "false"):
        if any(field.name == name and field.type == "bool" for field in fields(TrainConfig)):
            return [f"--{option}" if value.lower() == "true" else f"--no-{option}"]
        return [f"--{option}", value.capitalize()]  # may also be left out, so it is no switch
    return [f"--{option}", *value.split()]


def trial_name(setting: Setting, seed: int) -> str:
    """Name of a trial's folder."""
    parts = [f"{name}={value.replace(' ', 'x')}" for name, value in setting] or ["default"]
    return "-".join([*parts, f"s{seed}"])


def run_trial(flags: Flags, setting: Setting, seed: int, folder: Path) -> None:
    """Train, or go on with what was interrupted."""
    main_job = Path(__file__).with_name("pong_admm.py")
    if (folder / "checkpoints").is_dir() and any((folder / "checkpoints").glob("[0-9]*")):
        arguments = ["--resume", str(folder), "--total-steps", str(flags.steps)]
    else:
        if folder.exists():  # stopped before its first checkpoint: out of the way, but kept
            folder.rename(folder.with_name(f"{folder.name}.stopped-{time.strftime('%Y%m%d-%H%M%S')}"))
        arguments = ["--run-dir", str(folder), *trial_flags(flags, setting, seed)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.log").open("a") as log:
        subprocess.run([sys.executable, main_job, *arguments], stdout=log, stderr=log, check=True)


def result(setting: Setting, seed: int, folder: Path) -> dict:
    """What a finished trial reached."""
    summary = json.loads((folder / "summary.json").read_text())
    curve = [row["eval_return_mean"] for row in read_rows(folder / "evaluations.jsonl")]
    return {
        "setting": dict(setting),
        "seed": seed,
        "eval_return_mean": summary["eval_return_mean"],
        "eval_return_ci95": summary["eval_return_ci95"],
        "mean_over_evaluations": sum(curve) / len(curve),
        "env_steps": summary["env_steps"],
        "env_steps_per_second": summary["env_steps_per_second"],
        "wall_seconds": summary["wall_seconds"],
    }


def write(out: Path, flags: Flags, results: list[dict]) -> None:
    """results.jsonl, and table.md with the best mean over all evaluations (the fastest learner) first."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in results))
    groups: dict[str, list[dict]] = {}
    for row in results:
        name = ", ".join(f"{field} {value}" for field, value in row["setting"].items()) or "defaults"
        groups.setdefault(name, []).append(row)

    def mean(rows: list[dict], field: str) -> float:
        return sum(row[field] for row in rows) / len(rows)

    ranked = sorted(groups.items(), key=lambda group: -mean(group[1], "mean_over_evaluations"))
    lines = [
        f"{flags.env}, {flags.steps:,} agent steps, means over seeds",
        "",
        "| setting | seeds | mean of all evaluations | last evaluation | steps/s |",
        "|---|---|---|---|---|",
    ]
    for name, rows in ranked:
        figures = [mean(rows, field) for field in ("mean_over_evaluations", "eval_return_mean")]
        speed = mean(rows, "env_steps_per_second")
        lines.append(f"| {name} | {len(rows)} | {figures[0]:.1f} | {figures[1]:.1f} | {speed:.0f} |")
    (out / "table.md").write_text("\n".join(lines) + "\n")


def main(arguments: Sequence[str]) -> None:
    flags = cli.parse(Flags, arguments)
    results: list[dict] = []
    longest = 0.0
    for seed, setting in itertools.product(range(flags.seeds), settings(flags)):
        folder = flags.out / "trials" / trial_name(setting, seed)
        if not (folder / "summary.json").exists():
            used = sum(row["wall_seconds"] for row in results)
            if used + longest > 60 * flags.budget_minutes:
                print(f"stopped: {used / 60:.0f} of {flags.budget_minutes:g} minutes are used", flush=True)
                break
            print(f"{folder.name} ...", flush=True)
            run_trial(flags, setting, seed, folder)
        results.append(result(setting, seed, folder))
        longest = max(longest, results[-1]["wall_seconds"])
        write(flags.out, flags, results)
        print(f"{folder.name}: {results[-1]['eval_return_mean']:.2f}", flush=True)
    print(flags.out / "table.md")


if __name__ == "__main__":
    cli.run(main)
