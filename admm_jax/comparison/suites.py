"""What is compared: environments, how long, and cells of one algorithm each that differ in that alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from admm_jax.errors import one_of
from admm_jax.training.batch import Plan
from admm_jax.training.config import TrainConfig
from admm_jax.training.defaults import default_config
from admm_jax.training.rules import LOSSES, RULES, spelled_out


class Cell(NamedTuple):
    """One algorithm of a suite.

    Attributes:
        rule, loss: by name.
        variant: "default", or what is different.
        changes: settings on top of the suite's; the environment may be one of them.
        target, plan: mean score that counts as solved, and how long, if they are not the suite's.
    """

    rule: str
    loss: str
    variant: str = "default"
    changes: tuple[tuple[str, Any], ...] = ()
    target: float | None = None
    plan: Plan | None = None

    @property
    def label(self) -> str:
        """For people."""
        name = f"{self.rule}, {self.loss}"
        return name if self.variant == "default" else f"{name}, {self.variant}"


@dataclass(frozen=True)
class Suite:
    """Runs that may be compared: the same environment, workers, steps and evaluations.

    Attributes:
        env: name of the environment.
        plan: how long, and when to look.
        cells: the algorithms.
        target: mean score that counts as solved.
        seeds: how many, unless the user says otherwise.
        settings: of every run.
        meeting: settings of the rules that meet once per round or at every step, but not of the asynchronous one.
    """

    env: str
    plan: Plan
    cells: tuple[Cell, ...]
    target: float
    seeds: int = 10
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    meeting: dict[str, Any] = field(default_factory=dict, hash=False)

    def config(self, cell: Cell, workers: int | None = None, spread: float | None = None) -> TrainConfig:
        """The run of a cell, every setting spelled out, with seed 0.

        Raises:
            InvalidInput: settings that do not fit each other.
        """
        env = dict(cell.changes).get("env", self.env)
        start = default_config(env, cell.loss, rule=cell.rule)
        changes = dict(self.settings)
        if cell.rule != "a3c":
            changes |= self.meeting
        changes |= dict(cell.changes)
        if workers is not None:
            changes["workers"] = workers
        if spread is not None:
            changes |= {"heterogeneity": changes.get("heterogeneity", "physics"), "spread": spread}
        return spelled_out(replace(start, **changes))

    def plan_of(self, cell: Cell) -> Plan:
        """How long a cell trains."""
        return self.plan if cell.plan is None else cell.plan

    def chosen(self, rules: Sequence[str] = (), losses: Sequence[str] = ()) -> tuple[Cell, ...]:
        """The suite's cells, or those of some rules or losses; pairs that the suite lacks are added.

        Raises:
            InvalidInput: an unknown rule or loss.
        """
        for name in rules:
            one_of("rules", name, RULES)
        for name in losses:
            one_of("losses", name, LOSSES)
        kept = tuple(
            cell for cell in self.cells if (not rules or cell.rule in rules) and (not losses or cell.loss in losses)
        )
        there = {(cell.rule, cell.loss) for cell in kept}
        usual = {rule: ("a2c" if rule == "a3c" else "ppo",) for rule in RULES}
        wanted = [(rule, loss) for rule in rules for loss in (losses or usual[rule])]
        return kept + tuple(Cell(*pair) for pair in wanted if pair not in there)


def _every_rule(losses: Sequence[str] = ("ppo",)) -> tuple[Cell, ...]:
    return tuple(Cell(rule, loss) for rule in RULES for loss in (("a2c",) if rule == "a3c" else losses))


AVERAGING = ("admm", "fedavg", "fedprox", "easgd", "diloco")
"""Rules that exchange once per round. fedprox is ADMM whose dual is held at 0, all else equal: the ablation."""
CARTPOLE, ACROBOT = "gymnax:CartPole-v1", "gymnax:Acrobot-v1"


def _local_steps(rule: str, rollouts: int, note: str = "", target: float | None = None, **changes: Any) -> Cell:
    """16 local steps after each rollout, so many rollouts between exchanges."""
    settings = (("rollouts_per_round", rollouts), *changes.items())
    return Cell(rule, "ppo", f"{16 * rollouts} local steps{note}", settings, target)


PONG_PLAN = Plan(total_steps=2_000_000, eval_every=500_000, eval_episodes=8, final_episodes=30)


def _jax_pong(rule: str) -> Cell:
    """64 local steps after each rollout, two rollouts between exchanges."""
    settings = (("env", "jax-pong"), ("rollouts_per_round", 2))
    return Cell(
        rule, "ppo", "128 local steps, JAX Pong", settings, 10, PONG_PLAN._replace(eval_episodes=4, final_episodes=10)
    )


def _workers_that_differ() -> tuple[Cell, ...]:
    """CartPole for every rule, ADMM's pull against its local steps, and other ways to differ."""
    every = [_local_steps(rule, rollouts) for rollouts in (1, 6, 15) for rule in AVERAGING]
    every.append(_local_steps("gradient", 1))
    every.append(_local_steps("admm", 6, ", dual first", order="dual_first"))
    pulls = [
        _local_steps("admm", rollouts, f", kappa {kappa:g}", kappa=kappa)
        for rollouts in (1, 6, 15)
        for kappa in (0.1, 1.0, 3.0)
    ]
    others = [
        _local_steps(rule, 6, note, target, **changes)
        for note, target, changes in (
            (", Acrobot", -100.0, {"env": ACROBOT}),
            (", conflict", 300.0, {"heterogeneity": "conflict"}),
        )
        for rule in ("admm", "fedavg", "fedprox")
    ]
    return (*every, *pulls, *others, *(_jax_pong(rule) for rule in ("admm", "fedavg", "fedprox")))


SUITES: dict[str, Suite] = {
    "quick": Suite(
        env=CARTPOLE,
        plan=Plan(total_steps=40_000, eval_every=20_000, eval_episodes=5, final_episodes=10, greedy=True),
        cells=_every_rule(),
        target=475,
        seeds=2,
    ),
    "cartpole": Suite(
        env=CARTPOLE,
        plan=Plan(total_steps=300_000, eval_every=50_000, eval_episodes=10, final_episodes=30, greedy=True),
        cells=(
            *_every_rule(),
            Cell("gradient", "a2c"),
            Cell("a3c", "a2c", "t_max 20", (("rollout", 20),)),
            Cell("admm", "ppo", "dual first", (("order", "dual_first"),)),
        ),
        target=475,
    ),
    "heterogeneous": Suite(
        env=CARTPOLE,
        # 90 rollouts of each worker.
        plan=Plan(total_steps=368_640, eval_every=122_880, eval_episodes=4, final_episodes=10, greedy=True),
        cells=_workers_that_differ(),
        target=475,
        settings={"heterogeneity": "physics", "spread": 1.0},
    ),
    "minatar": Suite(
        env="gymnax:Breakout-MinAtar",
        plan=Plan(total_steps=1_000_000, eval_every=250_000, eval_episodes=10, final_episodes=30),
        cells=(Cell("admm", "ppo"), Cell("gradient", "ppo"), Cell("fedavg", "ppo")),
        target=10,
        seeds=5,
    ),
    "jax-pong": Suite(
        env="jax-pong",
        plan=PONG_PLAN,
        cells=(
            *(Cell("admm", "ppo"), Cell("gradient", "ppo"), Cell("fedavg", "ppo"), Cell("a3c", "a2c")),
            # Averaging parameters and averaging gradients may want different rates: as many tries for either.
            *(Cell(rule, "ppo", f"lr {lr}", (("lr", lr),)) for lr in (2e-3, 5e-4) for rule in ("admm", "gradient")),
            # What is noise of one worker cancels in the mean, which therefore moves less than its workers do.
            Cell("admm", "ppo", "over-relaxed", (("over_relaxation", 1.8),)),
            Cell("admm", "ppo", "dual first", (("order", "dual_first"),)),
            Cell("admm", "ppo", "over-relaxed, lr 0.002", (("over_relaxation", 1.8), ("lr", 2e-3))),
            Cell("admm", "ppo", "dual first, lr 0.002", (("order", "dual_first"), ("lr", 2e-3))),
        ),
        target=10,
    ),
    "atari-pong": Suite(
        env="Pong-v5",
        plan=Plan(total_steps=2_000_000, eval_every=200_000, eval_episodes=8, final_episodes=30),
        cells=(Cell("admm", "ppo"), Cell("gradient", "ppo"), Cell("gradient", "a2c"), Cell("a3c", "a2c")),
        target=18,
        seeds=1,
    ),
}
