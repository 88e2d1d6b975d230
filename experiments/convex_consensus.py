"""Consensus on convex problems whose answers are known.

python experiments/convex_consensus.py --problem quadratics --curvature 1,3 --centre 0,4 --rho 1 --rounds 50
python experiments/convex_consensus.py --problem lasso --workers 4 --dim 20 --seed 0 --json
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from admm_jax.cli import parse, run
from admm_jax.consensus import ADMM, EASGD, DiLoCo, FedAvg, FedProx, Regularizer, Rule
from admm_jax.consensus.problems import (
    Problem,
    Quadratics,
    lasso,
    logistic,
    quadratics,
    relative_distance,
    ridge,
)
from admm_jax.consensus.solve import Trajectory, solve
from admm_jax.errors import InvalidInput, at_least, finite

WITH_PENALTY = ("admm", "fedprox")


class Plan(NamedTuple):
    """Everything `solve` takes, resolved from the flags."""

    problem: Problem
    rule: Rule
    penalties: np.ndarray
    participates: np.ndarray
    weights: list[float] | None
    steps: int
    lr: float


@dataclass(frozen=True)
class ConvexConsensus:
    """Minimise sum_i w_i f_i(z) + g(z) by consensus of workers i = 0, 1, ...; rounds count from 1.

    A flag that is left out has the default of its problem, rule or inner solver; one that does not belong to these is
    refused. With --problem quadratics everything is a scalar: f_i(x) = a_i/2 (x - c_i)^2.

    Args:
        problem: quadratics, or lasso, ridge or logistic on random data. Their answer on a single machine is compared.
        curvature: of each worker's quadratic, may be negative; 1,3 by default.
        centre: of each worker's quadratic; 0,4 by default.
        workers: number of workers of a data problem; 4 by default.
        dim: number of unknowns of a data problem; 20 by default.
        seed: of the random data and of --participate random:k; 0 by default.
        rule: admm, fedavg (plain gradient steps, then the mean), fedprox (ADMM without a dual), easgd (elastic
            averaging) or diloco (outer Nesterov momentum).
        rho: penalty of admm and fedprox, above 0; 1 by default.
        rho_at: other penalties from some rounds on: 2:2.0,5:3 is 2 from round 2 and 3 from round 5.
        rounds: local solves and exchanges, at least 1.
        inner: local solver. exact by default, and gradient for fedavg, easgd, diloco; hybrid for admm alone.
        inner_steps: gradient steps per round, not with exact; 10 by default.
        inner_lr: their step size, not with exact; 0.1 by default.
        restart: admm: start local solves from the consensus (default) or from the worker's own last solution.
        over_relaxation: admm: alpha above 0 and below 2; 1 by default.
        dual_leak: admm: share of the dual that is lost per round, 0 to 1; 0 by default.
        order: admm: the dual moves after the consensus (textbook, default) or before it (dual_first).
        elasticity: easgd: how far z goes towards the mean, above 0 and at most 1; 0.9 by default.
        outer_lr: diloco: step of z along the mean update; 0.7 by default.
        outer_momentum: diloco: Nesterov momentum of that step, at least 0 and below 1; 0.9 by default.
        l1: weight of |z|_1 in sum_i w_i f_i(z) + l1 |z|_1; 0 by default, and 0.5 for lasso.
        weights: of the workers' objectives, each above 0; 1 each by default.
        participate: who takes part in rounds 1, 2, ..., repeated: 0,1/2,3; or random:2 for two random workers per
            round. Everyone by default.
        json: print one JSON object instead of a table.
    """

    problem: Literal["quadratics", "lasso", "ridge", "logistic"] = "quadratics"
    curvature: str | None = None
    centre: str | None = None
    workers: int | None = None
    dim: int | None = None
    seed: int | None = None
    rule: Literal["admm", "fedavg", "fedprox", "easgd", "diloco"] = "admm"
    rho: float | None = None
    rho_at: str | None = None
    rounds: int = 50
    inner: Literal["exact", "gradient", "proximal", "hybrid"] | None = None
    inner_steps: int | None = None
    inner_lr: float | None = None
    restart: Literal["worker", "consensus"] | None = None
    over_relaxation: float | None = None
    dual_leak: float | None = None
    order: Literal["textbook", "dual_first"] | None = None
    elasticity: float | None = None
    outer_lr: float | None = None
    outer_momentum: float | None = None
    l1: float | None = None
    weights: str | None = None
    participate: str | None = None
    json: bool = False
    plan: Plan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        at_least("rounds", self.rounds, 1)
        inner = self._inner()
        self._refuse_what_does_not_belong(inner)
        problem = self._problem()
        steps = 10 if self.inner_steps is None else self.inner_steps
        lr = 0.1 if self.inner_lr is None else self.inner_lr
        at_least("inner_steps", steps, 1)
        finite("inner_lr", lr, above=0)
        plan = Plan(
            problem=problem,
            rule=self._rule(inner, problem.regularizer),
            penalties=self._penalties(problem, inner, steps, lr),
            participates=self._participation(problem.num_workers),
            weights=self._weights(problem.num_workers),
            steps=steps,
            lr=lr,
        )
        object.__setattr__(self, "plan", plan)

    def _inner(self) -> str:
        if self.rule in WITH_PENALTY:
            return self.inner or "exact"
        if self.inner not in (None, "gradient"):
            allowed = f"gradient, or omitted, with rule {self.rule}, which takes plain gradient steps"
            raise InvalidInput("inner", self.inner, allowed)
        return "gradient"

    def _refuse_what_does_not_belong(self, inner: str) -> None:
        scalar = self.problem == "quadratics"
        draws = (self.participate or "").startswith("random")
        omitted = {
            "curvature": None if scalar else f"problem {self.problem}",
            "centre": None if scalar else f"problem {self.problem}",
            "workers": "problem quadratics: curvature has one number per worker" if scalar else None,
            "dim": "problem quadratics, whose unknown is a scalar" if scalar else None,
            "seed": "problem quadratics unless participate is random:k" if scalar and not draws else None,
            "rho": None if self.rule in WITH_PENALTY else f"rule {self.rule}, which has no penalty",
            "rho_at": None if self.rule in WITH_PENALTY else f"rule {self.rule}, which has no penalty",
            "inner_steps": "inner solver exact" if inner == "exact" else None,
            "inner_lr": "inner solver exact" if inner == "exact" else None,
            "restart": None if self.rule == "admm" else f"rule {self.rule}, which leaves no choice",
            "over_relaxation": None if self.rule == "admm" else f"rule {self.rule}",
            "dual_leak": None if self.rule == "admm" else f"rule {self.rule}, which has no dual",
            "order": None if self.rule == "admm" else f"rule {self.rule}, which has no dual",
            "elasticity": None if self.rule == "easgd" else f"rule {self.rule}",
            "outer_lr": None if self.rule == "diloco" else f"rule {self.rule}",
            "outer_momentum": None if self.rule == "diloco" else f"rule {self.rule}",
        }
        for name, owner in omitted.items():
            if owner is not None and getattr(self, name) is not None:
                raise InvalidInput(name, getattr(self, name), f"omitted with {owner}")

    def _problem(self) -> Problem:
        l1 = {} if self.l1 is None else {"l1": self.l1}
        if self.problem == "quadratics":
            curvature = _numbers("curvature", "1,3" if self.curvature is None else self.curvature)
            centre = _numbers("centre", "0,4" if self.centre is None else self.centre)
            return quadratics(curvature, centre, **l1)
        make = {"lasso": lasso, "ridge": ridge, "logistic": logistic}[self.problem]
        shape = {name: getattr(self, name) for name in ("workers", "dim", "seed")}
        return make(**{name: value for name, value in shape.items() if value is not None}, **l1)

    def _rule(self, inner: str, regularizer: Regularizer) -> Rule:
        if self.rule == "fedavg":
            return FedAvg(regularizer)
        if self.rule == "fedprox":
            return FedProx(inner, regularizer)
        if self.rule == "admm":
            return ADMM(
                inner,
                restart=self.restart or "consensus",
                over_relaxation=1.0 if self.over_relaxation is None else self.over_relaxation,
                dual_leak=0.0 if self.dual_leak is None else self.dual_leak,
                order=self.order or "textbook",
                regularizer=regularizer,
            )
        if regularizer != Regularizer():
            allowed = f"admm, fedavg or fedprox with problem {self.problem} and its l1 or l2 term, which others ignore"
            raise InvalidInput("rule", self.rule, allowed)
        if self.rule == "easgd":
            return EASGD(0.9 if self.elasticity is None else self.elasticity)
        lr = 0.7 if self.outer_lr is None else self.outer_lr
        return DiLoCo(lr, 0.9 if self.outer_momentum is None else self.outer_momentum)

    def _penalties(self, problem: Problem, inner: str, steps: int, lr: float) -> np.ndarray:
        if self.rule not in WITH_PENALTY:
            # g(z) is the only term that sees it: with one local step this makes fedavg proximal gradient descent.
            return np.full(self.rounds, 1 / (steps * lr))
        rho = 1.0 if self.rho is None else self.rho
        finite("rho", rho, above=0)
        changes = _penalty_changes(self.rho_at, self.rounds)
        if inner == "exact" and isinstance(problem, Quadratics):
            worker = int(np.argmin(problem.curvature))
            least = -float(problem.curvature[worker])
            allowed = f"above {least:g} for exact local solves: worker {worker} has curvature {-least:g}"
            if rho <= least:
                raise InvalidInput("rho", rho, allowed)
            if any(value <= least for value in changes.values()):
                raise InvalidInput("rho_at", self.rho_at, allowed)
        penalties = np.full(self.rounds, rho)
        for first in sorted(changes):
            penalties[first - 1 :] = changes[first]
        return penalties

    def _participation(self, workers: int) -> np.ndarray:
        """Who takes part, bool [rounds, W]."""
        if self.participate is None:
            return np.ones((self.rounds, workers), bool)
        schedule = np.zeros((self.rounds, workers), bool)
        if self.participate.startswith("random"):
            allowed = f"random:k with k from 1 to {workers}, the number of workers"
            drawn, _, count = self.participate.partition(":")
            if not (drawn == "random" and count.isdecimal() and 1 <= int(count) <= workers):
                raise InvalidInput("participate", self.participate, allowed)
            random = np.random.default_rng(0 if self.seed is None else self.seed)
            for row in schedule:
                row[random.choice(workers, int(count), replace=False)] = True
            return schedule
        groups = []
        for text in self.participate.split("/"):
            names = text.split(",")
            if not all(name.strip().isdecimal() and int(name) < workers for name in names):
                allowed = f"worker numbers from 0 to {workers - 1}, like 0,1/1 for rounds 1 and 2, or random:k"
                raise InvalidInput("participate", self.participate, allowed)
            groups.append([int(name) for name in names])
        for number, row in enumerate(schedule):
            row[groups[number % len(groups)]] = True
        return schedule

    def _weights(self, workers: int) -> list[float] | None:
        if self.weights is None:
            return None
        weights = _numbers("weights", self.weights)
        if len(weights) != workers or min(weights) <= 0:
            raise InvalidInput("weights", self.weights, f"{workers} numbers above 0, one per worker")
        return weights


def main(arguments: Sequence[str] | None = None) -> None:
    config = parse(ConvexConsensus, arguments)
    plan = config.plan
    with jax.enable_x64(True):
        trajectory = solve(
            plan.rule,
            plan.problem,
            rounds=config.rounds,
            penalty=plan.penalties,
            participates=plan.participates,
            weights=plan.weights,
            steps=plan.steps,
            lr=plan.lr,
        )
    distance = None
    if config.problem != "quadratics":
        distance = relative_distance(trajectory.z[-1], plan.problem.centralised(plan.weights))
    show = print_json if config.json else print_table
    show(trajectory, distance)


def print_json(trajectory: Trajectory, distance: float | None) -> None:
    """One object whose lists have one entry per round; unknowns of one coordinate are plain numbers."""
    result: dict[str, Any] = {
        "z": _numbers_of(trajectory.z, vector_rank=2),
        "theta": _numbers_of(trajectory.theta, vector_rank=3),
        "dual": _numbers_of(trajectory.dual, vector_rank=3),
        "primal_residual": _numbers_of(trajectory.residuals.primal),
        "dual_residual": _numbers_of(trajectory.residuals.dual),
    }
    if distance is not None:
        result["distance_to_centralised"] = distance
    json.dump(result, sys.stdout, allow_nan=False)
    print()


def print_table(trajectory: Trajectory, distance: float | None) -> None:
    """Rounds as rows: scalars in full, vectors by their norms."""
    scalar = trajectory.z.ndim == 1
    print(f"{'round':>5} {'z' if scalar else '|z|':>12} {'|r|':>10} {'|s|':>10}  ", end="")
    print("theta | lambda" if scalar else "|lambda|")
    for number in range(len(trajectory.z)):
        z, dual = trajectory.z[number], trajectory.dual[number]
        primal, moved = trajectory.residuals.primal[number], trajectory.residuals.dual[number]
        print(
            f"{number + 1:>5} {z if scalar else np.linalg.norm(z):>12.6f} {primal:>10.3e} {moved:>10.3e}  ",
            end="",
        )
        if scalar:
            print(*(f"{x:.6f}" for x in trajectory.theta[number]), "|", *(f"{x:.6f}" for x in dual))
        else:
            print(f"{np.linalg.norm(dual):.6f}")
    if distance is not None:
        print(f"relative distance to the centralised solution: {distance:.3e}")


def _numbers_of(values: np.ndarray, vector_rank: int | None = None) -> list:
    """Nested lists; a last axis of length 1 is dropped at ``vector_rank``, and what is not finite becomes null."""
    if values.ndim == vector_rank and values.shape[-1] == 1:
        values = values[..., 0]
    return np.where(np.isfinite(values), values.astype(object), None).tolist()


def _numbers(name: str, text: str) -> list[float]:
    numbers = _converted(text.split(","), float)
    if numbers is None or not all(map(math.isfinite, numbers)):
        raise InvalidInput(name, text, "finite numbers separated by commas, one per worker")
    return numbers


def _penalty_changes(text: str | None, rounds: int) -> dict[int, float]:
    """2:2.0,5:3 as {2: 2.0, 5: 3.0}."""
    if text is None:
        return {}
    pairs = [entry.split(":") for entry in text.split(",")]
    well_formed = all(len(pair) == 2 for pair in pairs)
    firsts = _converted([pair[0] for pair in pairs], int)
    values = _converted([pair[-1] for pair in pairs], float)
    if (
        not (well_formed and firsts and values)
        or len(set(firsts)) < len(firsts)
        or not all(1 <= first <= rounds for first in firsts)
        or not all(math.isfinite(value) and value > 0 for value in values)
    ):
        allowed = f"different rounds from 1 to {rounds}, each with a finite number above 0, like 2:2.0,5:3"
        raise InvalidInput("rho_at", text, allowed)
    return dict(zip(firsts, values, strict=True))


def _converted(texts: list[str], convert: Callable[[str], Any]) -> list | None:
    try:
        return [convert(text) for text in texts]
    except ValueError:
        return None


if __name__ == "__main__":
    run(main)
