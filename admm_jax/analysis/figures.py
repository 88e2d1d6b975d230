"""Pictures of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def learning_curves(
    runs: Mapping[str, tuple[Sequence[dict], Sequence[dict]]],
    baselines: Mapping[str, float],
    title: str,
    path: Path,
) -> None:
    """Returns against environment steps: of training as a line, of z's evaluations with their intervals.

    Args:
        runs: by label, rows of metrics and rows of evaluations, as in a run's folder.
        baselines: scores drawn as horizontal lines, by name.
        title: of the picture.
        path: PNG to write.
    """
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for label, (metrics, evaluations) in runs.items():
        points = [(row["env_steps"], row["recent_return"]) for row in metrics if row["recent_return"] is not None]
        (line,) = axes.plot(
            *zip(*points, strict=True), linewidth=1, alpha=0.6, label=f"{label}: last 40 training games"
        )
        steps = [row["env_steps"] for row in evaluations]
        means = [row["eval_return_mean"] for row in evaluations]
        below = [row["eval_return_mean"] - row["eval_return_ci95"][0] for row in evaluations]
        above = [row["eval_return_ci95"][1] - row["eval_return_mean"] for row in evaluations]
        axes.errorbar(
            steps,
            means,
            yerr=(below, above),
            fmt="o",
            capsize=3,
            color=line.get_color(),
            label=f"{label}: z, full games",
        )
    for style, (name, score) in zip((":", "--", "-."), baselines.items(), strict=False):
        axes.axhline(score, color="grey", linestyle=style, linewidth=1, label=f"{name} ({score:g})")
    axes.set(xlabel="agent steps of all workers", ylabel="raw return", title=title)
    axes.ticklabel_format(axis="x", style="plain")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M")
    axes.grid(alpha=0.3)
    axes.legend(loc="best", fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
