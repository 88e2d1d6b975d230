"""A report on results: a page with tables, and pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from admm_jax.analysis.baselines import BASELINES
from admm_jax.analysis.figures import Series, curves, profile
from admm_jax.analysis.links import LINKS
from admm_jax.analysis.statistics import Estimate, bootstrap, bootstrap_difference
from admm_jax.comparison.results import Results

REFERENCE = "admm"
GroupKey = tuple[str, str, str]
"""Rule, loss, variant."""

AXES = {
    "env_steps": "million agent steps of all workers",
    "bytes": "MB sent up per worker",
    "seconds": "simulated seconds at 1 Gb/s",
}


def write_report(results: Results) -> Path:
    """Write report.md and its pictures into the folder of the results; returns the page."""
    sections: dict[tuple[str, ...], list[dict]] = defaultdict(list)
    for row in results.rows:
        differ = row["config"]["heterogeneity"]
        task = row["suite"], row["env"].removeprefix("gymnax:"), *((differ,) if differ != "none" else ())
        sections[task].append(row)
    parts = ["# Comparison\n", _preface()]
    for task, rows in sections.items():
        parts.append(_section(" ".join(dict.fromkeys(task)), rows, results.folder))
    page = results.folder / "report.md"
    page.write_text("\n".join(parts))
    return page


def _preface() -> str:
    return (
        "Scores are those of z: raw returns of full games. IQM: interquartile mean over seeds, with its 95 % bootstrap "
        "interval. Worst: the worker on whose environments z scores lowest (where these differ). Bytes: sent up by one "
        "worker. Seconds: a model of workers with a machine each (as fast as this one is for one of them) and a "
        "server. Steps to target: median over seeds of the first evaluation that reached it; never if fewer than half "
        "did.\n"
    )


def grouped(rows: Sequence[dict]) -> dict[GroupKey, list[dict]]:
    """Rows by algorithm, in order of seeds."""
    groups: dict[GroupKey, list[dict]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["seed"]):
        groups[row["rule"], row["loss"], row["variant"]].append(row)
    return groups


def _section(suite: str, rows: list[dict], folder: Path) -> str:
    groups = grouped(rows)
    env = rows[0]["env"]
    lines = [f"## {suite}, {rows[0]['workers']} workers\n"]
    links = list(LINKS)
    head = [
        "rule",
        "loss",
        "variant",
        "seeds",
        "score (IQM)",
        "minus ADMM",
        "worst (IQM)",
        "minus ADMM",
        "MB up",
        "bytes / ADMM's",
    ]
    head += [*(f"s at {link} (waits)" for link in links), "steps to target"]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for group, members in groups.items():
        lines.append("| " + " | ".join(_cells(group, members, groups, links)) + " |")
    for name, score in BASELINES.get(env, {}).items():
        lines.append(f"| {name} | | | | {score:g} |" + " |" * (len(head) - 5))
    lines.append("")
    lines += _inconsistency(groups)
    groups = _without_ablations(groups)
    for axis in AXES:
        name = f"{suite.replace(' ', '-')}-{axis.replace('_', '-')}.png"
        curves(
            _series(groups, axis), AXES[axis], "score of z (IQM, 95 % CI)", suite, folder / name, axis != "env_steps"
        )
        lines.append(f"![{suite}: score against {axis}]({name})")
    name = f"{suite.replace(' ', '-')}-profile.png"
    scores = {_label(group): [row["eval_return_mean"] for row in members] for group, members in groups.items()}
    profile(scores, suite, folder / name)
    lines.append(f"![{suite}: performance profile]({name})\n")
    return "\n".join(lines)


def _cells(group: GroupKey, members: list[dict], groups: dict[GroupKey, list[dict]], links: Sequence[str]) -> list[str]:
    reference = _reference(group, groups)
    megabytes = members[0]["bytes_sent_per_worker"] / 1e6
    ratio = ""
    if reference is not None:
        # Per environment step, so that rounds of different lengths compare.
        per_step = [row["bytes_sent_per_worker"] / row["env_steps"] for row in (members[0], groups[reference][0])]
        ratio = f"{per_step[0] / per_step[1]:.3g}"
    differ = any(row["eval_return_worst_worker"] != row["eval_return_mean"] for row in members)
    reached = sorted(row["steps_to_target"] or float("inf") for row in members)
    median = reached[len(reached) // 2]
    return [
        *group,
        str(len(members)),
        _estimate(bootstrap([row["eval_return_mean"] for row in members])),
        _difference("eval_return_mean", group, reference, groups),
        _estimate(bootstrap([row["eval_return_worst_worker"] for row in members])) if differ else "",
        _difference("eval_return_worst_worker", group, reference, groups) if differ else "",
        f"{megabytes:.3g}",
        ratio,
        *(f"{members[0]['simulated_seconds'][link]:.3g} ({members[0]['waiting_share'][link]:.0%})" for link in links),
        f"{median:,.0f}" if median < float("inf") else "never",
    ]


def _difference(name: str, group: GroupKey, reference: GroupKey | None, groups: dict[GroupKey, list[dict]]) -> str:
    """Of an algorithm's scores to those of the reference, over the seeds that both have; unpaired, since sharing a seed
    does not make two algorithms' runs alike."""
    if reference is None or group == reference:
        return ""
    mine, theirs = ({row["seed"]: row[name] for row in groups[which]} for which in (group, reference))
    common = [seed for seed in mine if seed in theirs]
    if not common:
        return ""
    ours, others = [mine[seed] for seed in common], [theirs[seed] for seed in common]
    return _estimate(bootstrap_difference(ours, others, paired=False), sign=True)


def _reference(group: GroupKey, groups: dict[GroupKey, list[dict]]) -> GroupKey | None:
    """ADMM in the same variant, or without its last change, or in the default; ADMM itself if there is no other."""
    variant = group[2]
    for name in (variant, variant.rpartition(", ")[0], "default"):
        candidate = (REFERENCE, "ppo", name)
        if candidate in groups and candidate != group:
            return candidate
    return group if group[0] == REFERENCE else None


def _without_ablations(groups: dict[GroupKey, list[dict]]) -> dict[GroupKey, list[dict]]:
    """What pictures show: not the variants of variants, unless there is nothing else."""
    kept = {group: members for group, members in groups.items() if ", " not in group[2]}
    return kept or groups


def _inconsistency(groups: dict[GroupKey, list[dict]]) -> list[str]:
    """What the A3C article is about: workers that pull apart, explore unevenly, and oscillate; means over runs."""
    names = ["update_cosine", "kl_to_z", "entropy", "entropy_spread", "staleness_mean", "oscillation"]
    lines = ["| algorithm | cosine of updates | KL to z, nats | entropy, nats | its spread | staleness | oscillation |"]
    lines.append("|" + "---|" * 7)
    for group, members in groups.items():
        values = [[row[name] for row in members if row[name] is not None] for name in names]
        means = [f"{sum(value) / len(value):.3g}" if value else "" for value in values]
        lines.append(f"| {_label(group)} | " + " | ".join(means) + " |")
    return [*lines, ""]


def _series(groups: dict[GroupKey, list[dict]], axis: str) -> list[Series]:
    series = []
    for group, members in groups.items():
        length = min(len(row["curve"]) for row in members)
        points, estimates = [], []
        for index in range(length):
            first = members[0]
            done, steps = first["curve"][index][:2]
            share = done / first["rounds"]
            points.append(
                {
                    "env_steps": steps / 1e6,
                    "bytes": first["bytes_sent_per_worker"] * share / 1e6,
                    "seconds": first["simulated_seconds"]["1 Gb/s"] * share,
                }[axis]
            )
            estimates.append(bootstrap([row["curve"][index][2] for row in members]))
        series.append(Series(_label(group), group[0], points, estimates))
    return series


def _label(group: GroupKey) -> str:
    rule, loss, variant = group
    return f"{rule}, {loss}" + ("" if variant == "default" else f", {variant}")


def _estimate(estimate: Estimate, sign: bool = False) -> str:
    form = "+.1f" if sign else ".1f"
    return f"{estimate.value:{form}} ({estimate.low:{form}} to {estimate.high:{form}})"
