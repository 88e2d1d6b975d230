"""A rule at work on a convex problem: rounds of local solves and an exchange, each compiled as one program."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from admm_jax.consensus.local_solver import local_step
from admm_jax.consensus.problems import Problem
from admm_jax.consensus.reduction import LocalReduction
from admm_jax.consensus.rule import Rule
from admm_jax.consensus.state import ConsensusState, Residuals
from admm_jax.errors import InvalidInput, at_least, finite


class Trajectory(NamedTuple):
    """One entry per round along the leading axis; an unknown of the problem is written [...].

    Attributes:
        z: the consensus after each exchange, [rounds, ...].
        theta: local solutions as they were exchanged, before any restart, [rounds, W, ...].
        dual: lambda = rho u after each exchange (loss per parameter), [rounds, W, ...]; 0 for rules without a dual.
        residuals: leaves [rounds].
    """

    z: np.ndarray
    theta: np.ndarray
    dual: np.ndarray
    residuals: Residuals


def solve(
    rule: Rule,
    problem: Problem,
    *,
    rounds: int,
    penalty: float | Sequence[float] = 1.0,
    participates: Sequence[Sequence[bool]] | None = None,
    weights: Sequence[float] | None = None,
    steps: int = 10,
    lr: float = 0.1,
) -> Trajectory:
    """Run rounds from theta = z = 0 and zero duals.

    Rules whose ``inner`` is ``exact`` apply the problem's prox at `rule.centre`; all others take ``steps`` plain
    gradient steps of ``lr``, with a pull of strength c = lr rho, which makes each of them a proximal gradient step
    on the local problem.

    Args:
        rule: the consensus algorithm; its regulariser should be the problem's.
        problem: what to minimise.
        rounds: exchanges, >= 1.
        penalty: rho, one for all rounds or [rounds]; when it changes lambda stays.
        participates: bool [rounds, W]; everyone in every round if None.
        weights: [W]; 1 each if None.
        steps: K >= 1, gradient steps per round.
        lr: step size > 0.

    Raises:
        InvalidInput: a number outside its range, or an array of another shape.
    """
    at_least("rounds", rounds, 1)
    at_least("steps", steps, 1)
    finite("lr", lr, above=0)
    penalties = np.asarray(penalty, np.float64)
    if penalties.shape not in ((), (rounds,)) or not (np.isfinite(penalties) & (penalties > 0)).all():
        raise InvalidInput("penalty", penalty, f"a finite number above 0, or {rounds} of them, one per round")
    everyone = (rounds, problem.num_workers)
    mask = np.ones(everyone, bool) if participates is None else np.asarray(participates, bool)
    if mask.shape != everyone:
        raise InvalidInput("participates", participates, f"truth values of shape {everyone}: round, worker")
    dtype = problem.origin.dtype
    penalties = jnp.asarray(np.broadcast_to(penalties, (rounds,)), dtype)
    state = rule.init(problem.origin, problem.num_workers, penalty=penalties[0], weights=weights)
    history = []
    for number in range(rounds):
        state, entry = _round(rule, steps, problem, state, penalties[number], mask[number], jnp.asarray(lr, dtype))
        history.append(entry)
    return jax.tree.map(lambda *entries: np.stack(entries), *jax.device_get(history))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _round(
    rule: Rule,
    steps: int,
    problem: Problem,
    state: ConsensusState,
    penalty: jax.Array,
    participates: jax.Array,
    lr: jax.Array,
) -> tuple[ConsensusState, Trajectory]:
    reduction = LocalReduction()
    shared, workers = state = rule.change_penalty(state, penalty)

    def descend(_: int, theta: jax.Array) -> jax.Array:
        grads = rule.average_gradients(problem.gradient(theta), workers.weight, participates, reduction)

        def one_worker(theta, grads, worker):
            return local_step(rule, theta, grads, worker, shared, lambda x, g: x - lr * g, lr * penalty)

        return jax.vmap(one_worker)(theta, grads, workers)

    if getattr(rule, "inner", None) == "exact":
        theta = problem.prox(jax.vmap(rule.centre, (0, None))(workers, shared), penalty)
    else:
        start = jax.vmap(rule.start, (0, None))(workers, shared)
        theta = jax.lax.fori_loop(0, steps, descend, start)

    state, residuals = rule.exchange(theta, state, participates=participates, reduction=reduction)
    theta, scaled_dual = state.workers.theta, state.workers.scaled_dual
    dual = jnp.zeros_like(theta) if scaled_dual is None else penalty * scaled_dual
    return state, Trajectory(state.shared.z, theta, dual, residuals)
