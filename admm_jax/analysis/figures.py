"""Pictures of runs, from the rows of their folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np

from admm_jax.analysis.statistics import Estimate, performance_profile

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes


class Rows(NamedTuple):
    """Of one run: rows of metrics.jsonl and of evaluations.jsonl."""

    metrics: Sequence[dict]
    evaluations: Sequence[dict]


# What the panels below the learning curve show: title, unit, and (metric, its name) pairs.
PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("residuals", "relative", (("relative_primal_residual", "primal"), ("relative_dual_residual", "dual"))),
    ("entropy of the policies", "nats", (("entropy", ""),)),
    ("distance to z, and to the policy that acted", "KL, nats", (("kl_to_z", "to z"), ("approx_kl", "to the actor"))),
    ("cosine between workers' updates", "", (("update_cosine", ""),)),
)
STYLES = ("-", ":")


def learning_curves(runs: Mapping[str, Rows], baselines: Mapping[str, float], title: str, path: Path) -> None:
    """Returns against environment steps: of training as a line, of z's evaluations with their intervals.

    Args:
        runs: by label.
        baselines: scores drawn as horizontal lines, by name.
        title: of the picture.
        path: PNG to write.
    """
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for label, rows in runs.items():
        _returns(axes, rows, "env_steps", 1e-6, label)
    _baselines(axes, baselines)
    axes.set(xlabel="million agent steps of all workers", ylabel="raw return", title=title)
    axes.legend(loc="best", fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def run_page(runs: Mapping[str, Rows], baselines: Mapping[str, float], title: str, path: Path) -> None:
    """One page on one or more runs: returns against steps and against bytes, residuals, entropy, KL, cosine.

    Args: as those of `learning_curves`.
    """
    figure, grid = plt.subplots(2, 3, figsize=(15, 8), layout="constrained")
    by_steps, by_bytes, *others = (grid[0, 0], grid[0, 1], grid[0, 2], *grid[1])
    for label, rows in runs.items():
        _returns(by_steps, rows, "env_steps", 1e-6, label)
        _returns(by_bytes, rows, "bytes_sent_per_worker", 1e-9, label)
    for axes in (by_steps, by_bytes):
        _baselines(axes, baselines)
        axes.set(ylabel="raw return")
    by_steps.legend(loc="best", fontsize=7)
    by_steps.set(xlabel="million agent steps of all workers", title="return: training (line), z (points)")
    by_bytes.set(xlabel="GB sent up per worker", title="return against traffic")
    for axes, (name, unit, metrics) in zip(others, PANELS, strict=True):
        for number, rows in enumerate(runs.values()):
            for style, (metric, part) in zip(STYLES, metrics, strict=False):
                points = [(row["env_steps"] / 1e6, row[metric]) for row in rows.metrics if row[metric] is not None]
                if points:
                    part_label = part if number == 0 else ""
                    axes.plot(*zip(*points, strict=True), style, color=f"C{number}", linewidth=1, label=part_label)
        axes.set(title=name, ylabel=unit, xlabel="million agent steps")
        axes.grid(alpha=0.3)
        if len(metrics) > 1:
            axes.legend(loc="best", fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _returns(axes: Axes, rows: Rows, against: str, unit: float, label: str) -> None:
    """Training returns as a line and evaluations as points, over the quantity ``against``."""
    points = [(row[against] * unit, row["recent_return"]) for row in rows.metrics if row["recent_return"] is not None]
    (line,) = axes.plot(*(zip(*points, strict=True) if points else ((), ())), linewidth=1, alpha=0.7, label=label)
    evaluations = [(row.get(against), row["eval_return_mean"], *row["eval_return_ci95"]) for row in rows.evaluations]
    evaluations = [row for row in evaluations if None not in row]
    if evaluations:
        places, means, lows, highs = map(list, zip(*evaluations, strict=True))
        spread = [
            [mean - low for mean, low in zip(means, lows, strict=True)],
            [high - mean for mean, high in zip(means, highs, strict=True)],
        ]
        places = [place * unit for place in places]
        axes.errorbar(places, means, yerr=spread, fmt="o", markersize=4, capsize=3, color=line.get_color())


def _baselines(axes: Axes, baselines: Mapping[str, float]) -> None:
    for style, (name, score) in zip((":", "--", "-."), baselines.items(), strict=False):
        axes.axhline(score, color="grey", linestyle=style, linewidth=1, label=f"{name} ({score:g})")
    axes.grid(alpha=0.3)


class Series(NamedTuple):
    """A curve with an interval.

    Attributes:
        label: for the legend.
        rule: decides the colour.
        points: positions on the x axis.
        estimates: one per point.
    """

    label: str
    rule: str
    points: Sequence[float]
    estimates: Sequence[Estimate]


# Okabe & Ito's palette, which colour-blind readers can tell apart; a rule has the same colour in every picture.
RULE_COLOURS = {
    "admm": "#0072B2",
    "fedavg": "#E69F00",
    "fedprox": "#009E73",
    "easgd": "#CC79A7",
    "diloco": "#56B4E9",
    "gradient": "#D55E00",
    "a3c": "#000000",
}
LINES = ("-", "--", ":", "-.")


def curves(series: Sequence[Series], xlabel: str, ylabel: str, title: str, path: Path, log: bool = False) -> None:
    """Statistics with their intervals over some quantity; algorithms of one rule differ in their lines."""
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    seen: dict[str, int] = {}
    for one in series:
        style = LINES[seen.setdefault(one.rule, 0) % len(LINES)]
        seen[one.rule] += 1
        colour = RULE_COLOURS.get(one.rule, "grey")
        axes.plot(one.points, [e.value for e in one.estimates], style, marker="o", ms=3, color=colour, label=one.label)
        lows, highs = [e.low for e in one.estimates], [e.high for e in one.estimates]
        axes.fill_between(one.points, lows, highs, color=colour, alpha=0.12, linewidth=0)
    if log:
        axes.set_xscale("log")
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)
    _legend(axes)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def profile(scores: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """Share of runs above each score; labels begin with the rule."""
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    every = [score for values in scores.values() for score in values]
    thresholds = np.linspace(min(every) - 1, max(every) + 1, 200)
    seen: dict[str, int] = {}
    for label, values in scores.items():
        rule = label.split(",")[0]
        style = LINES[seen.setdefault(rule, 0) % len(LINES)]
        seen[rule] += 1
        shares = performance_profile(values, thresholds)
        axes.plot(thresholds, shares, style, color=RULE_COLOURS.get(rule, "grey"), label=label)
    axes.set(xlabel="score of z", ylabel="share of runs above", title=title, ylim=(-0.02, 1.02))
    axes.grid(alpha=0.3)
    _legend(axes)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _legend(axes: Axes) -> None:
    """Beside the curves, which it would hide."""
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
