"""Residuals against their definitions, written out over all numbers of all leaves."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ADMM, FedAvg


def flat(tree):
    """Leaves [W, ...] -> [W, d]."""
    return np.concatenate([np.asarray(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(tree)], axis=1)


def flat_one(tree):
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize("per_coordinate", [False, True])
def test_every_residual_is_its_definition(x64, tree_round, params, targets, per_coordinate):
    rule = ADMM(inner="exact", over_relaxation=1.4)
    penalty = 0.6
    if per_coordinate:
        penalty = jax.tree.map(lambda leaf: 0.2 + jnp.arange(leaf.size).reshape(leaf.shape), params(jnp.float64))
    state = rule.init(params(jnp.float64), 3, penalty=penalty, weights=jnp.array([1.0, 0.4, 1.5]))
    state, _ = tree_round(rule, state, targets, jnp.ones(3, bool))
    z_before = flat_one(state.shared.z)
    state, residuals = tree_round(rule, state, targets, jnp.ones(3, bool))
    rho = flat_one(penalty) if per_coordinate else penalty
    z, theta, u = flat_one(state.shared.z), flat(state.workers.theta), flat(state.workers.scaled_dual)
    primal = np.sqrt(((theta - z) ** 2).sum())  # theta un-relaxed, and before anyone restarts from z
    moved = np.sqrt(3) * np.linalg.norm(rho * (z - z_before))
    assert residuals.primal == pytest.approx(primal, abs=1e-12)
    assert residuals.dual == pytest.approx(moved, abs=1e-12)
    scale = max(np.linalg.norm(theta), np.sqrt(3) * np.linalg.norm(z))
    assert residuals.relative_primal == pytest.approx(primal / scale, abs=1e-12)
    assert residuals.relative_dual == pytest.approx(moved / np.linalg.norm(rho * u), abs=1e-12)
    assert residuals.scaled_dual_norm == pytest.approx(np.linalg.norm(u), abs=1e-12)
    assert residuals.failed == 0


@pytest.mark.parametrize("rule", [ADMM(inner="exact", over_relaxation=0.8), FedAvg()], ids=["admm", "fedavg"])
def test_cosine_is_the_mean_over_pairs_weighted_by_their_norms(x64, tree_round, params, targets, rule):
    weights = np.array([1.0, 0.4, 1.5])
    state = rule.init(params(jnp.float64), 3, penalty=0.6, weights=weights)
    for _ in range(3):
        z_before = flat_one(state.shared.z)
        state, residuals = tree_round(rule, state, targets, jnp.ones(3, bool))
        update = flat(state.workers.theta) - z_before
        norm = weights * np.linalg.norm(update, axis=1)
        pairs = list(itertools.combinations(range(3), 2))
        cosines = [update[i] @ update[j] / (np.linalg.norm(update[i]) * np.linalg.norm(update[j])) for i, j in pairs]
        expected = np.average(cosines, weights=[norm[i] * norm[j] for i, j in pairs])
        assert residuals.cosine == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("updates", "cosine"), [([2.0, 2.0, 2.0], 1.0), ([2.0, -2.0, 0.0], -1.0), ([1.5], 0.0)])
def test_cosine_of_workers_that_agree_differ_or_are_alone(x64, exchange, updates, cosine):
    rule = FedAvg()
    theta = jnp.array(updates)[:, None] * jnp.array([0.6, 0.8])
    state = rule.init(jnp.zeros(2), len(updates))
    _, residuals = exchange(rule, theta, state, jnp.ones(len(updates), bool))
    assert residuals.cosine == pytest.approx(cosine, abs=1e-12)


def test_relative_residuals_are_zero_where_their_scale_is(x64, exchange):
    rule = ADMM(inner="exact")
    state = rule.init(jnp.zeros(3), 2)
    _, residuals = exchange(rule, state.workers.theta, state, jnp.ones(2, bool))
    assert all(value == 0 for value in residuals)
