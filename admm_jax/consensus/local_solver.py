"""The local step that convex problems and reinforcement learning share, and the strength of its pull."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from admm_jax.consensus.rule import Rule
from admm_jax.consensus.state import Shared, Workers
from admm_jax.consensus.trees import PyTree


def pull_strength(kappa: float, steps: int) -> jax.Array:
    """c = exp(kappa / K) - 1: with it, K pulls alone shrink |theta - (z - u)| by exp(-kappa), whatever K is."""
    return jnp.expm1(kappa / steps)


def local_step(
    rule: Rule,
    theta: PyTree,
    grads: PyTree,
    worker: Workers,
    shared: Shared,
    descend: Callable[[PyTree, PyTree], PyTree],
    strength: jax.Array,
) -> PyTree:
    """One inexact step on one worker's local problem: the optimiser's step, then the prox of the penalty.

    Keeping the pull out of the optimiser matters for adaptive ones: inside Adam's gradient it would be normalised
    away while the dual goes on integrating (proximal gradient, Parikh & Boyd 2014, section 4.2).

    Args:
        rule: the consensus algorithm.
        theta, grads: leaves [...].
        worker: one worker's state, without the axis W.
        shared: replicated state.
        descend: the optimiser, (theta, gradient) -> theta.
        strength: c of the pull, >= 0; unused by rules without one.
    """
    theta = descend(theta, rule.gradient(grads, theta, worker, shared))
    return rule.pull(theta, worker, shared, strength)
