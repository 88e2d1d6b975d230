"""Workers whose update is not finite, and what puts them right."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ADMM, FedAvg, LocalReduction, forget_duals
from admm_jax.consensus.trees import is_finite

EVERYONE = jnp.ones(3, bool)
RULES = [ADMM(inner="exact", restart="worker"), ADMM(inner="proximal", over_relaxation=1.3), FedAvg()]


def same(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-12), a, b)


@jax.jit
def forget(workers, who):
    return forget_duals(workers, who, LocalReduction())


def spoil(tree, worker, name, value):
    leaf = np.array(tree[name])
    leaf[worker].flat[-1] = value if leaf[worker].ndim else 0
    if not leaf[worker].ndim:
        leaf[worker] = value
    return {**tree, name: jnp.asarray(leaf)}


@pytest.fixture
def after_two_rounds(x64, tree_round, params, targets):
    def run(rule):
        state = rule.init(params(jnp.float64), 3, penalty=0.8, weights=jnp.array([1.0, 0.4, 1.5]))
        for _ in range(2):
            state, _ = tree_round(rule, state, targets, EVERYONE)
        return state

    return run


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}-{rule.restart}")
@pytest.mark.parametrize(("name", "value"), [("a", jnp.nan), ("c", jnp.inf)])
def test_one_bad_number_in_one_leaf_keeps_the_worker_out(exchange, after_two_rounds, rule, targets, name, value):
    state = after_two_rounds(rule)
    theta = jax.tree.map(lambda leaf: leaf + 0.3, state.workers.theta)
    failed, residuals = exchange(rule, spoil(theta, 1, name, value), state, EVERYONE)
    absent, _ = exchange(rule, theta, state, jnp.array([True, False, True]))
    same(failed.shared.z, absent.shared.z)
    same(failed.workers.contribution, absent.workers.contribution)
    same(failed.workers.scaled_dual, absent.workers.scaled_dual)
    for leaf in targets:
        np.testing.assert_allclose(failed.workers.theta[leaf][1], failed.shared.z[leaf], atol=1e-12)
        np.testing.assert_allclose(failed.workers.theta[leaf][::2], absent.workers.theta[leaf][::2], atol=1e-12)
    assert failed.workers.failures.tolist() == [0, 1, 0]
    assert residuals.failed == 1
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves((failed, residuals)))


def test_a_failed_worker_starts_again_from_z(exchange, after_two_rounds):
    rule = RULES[0]
    state = after_two_rounds(rule)
    failed, _ = exchange(rule, spoil(state.workers.theta, 2, "b", jnp.nan), state, EVERYONE)
    start = jax.vmap(rule.start, (0, None))(failed.workers, failed.shared)
    same(jax.tree.map(lambda leaf: leaf[2], start), failed.shared.z)
    same(jax.tree.map(lambda leaf: leaf[0], start), jax.tree.map(lambda leaf: leaf[0], state.workers.theta))


def test_a_worker_may_be_declared_unhealthy(exchange, after_two_rounds):
    rule = RULES[0]
    state = after_two_rounds(rule)
    bad = spoil(state.workers.theta, 0, "a", jnp.nan)
    declared, residuals = exchange(rule, state.workers.theta, state, EVERYONE, jnp.array([False, True, True]))
    same(declared, exchange(rule, bad, state, EVERYONE)[0])
    assert residuals.failed == 1


def test_failures_running_are_counted(exchange, after_two_rounds):
    rule = RULES[0]
    state = after_two_rounds(rule)
    good, bad = state.workers.theta, spoil(state.workers.theta, 1, "a", jnp.nan)
    counts = []
    for theta, who in [(bad, EVERYONE), (bad, EVERYONE), (bad, ~EVERYONE), (good, EVERYONE), (bad, EVERYONE)]:
        state, _ = exchange(rule, theta, state, who)
        counts.append(int(state.workers.failures[1]))
    assert counts == [1, 2, 2, 0, 1]


def test_everyone_failing_leaves_z_and_duals(exchange, after_two_rounds):
    rule = RULES[0]
    state = after_two_rounds(rule)
    failed, residuals = exchange(rule, jax.tree.map(lambda leaf: leaf * jnp.nan, state.workers.theta), state, EVERYONE)
    same(failed.shared.z, state.shared.z)
    same(failed.workers.scaled_dual, state.workers.scaled_dual)
    assert residuals.failed == 3


def test_a_forgotten_dual_is_zero_before_the_others_are_recentred(after_two_rounds, targets):
    state = after_two_rounds(RULES[0])
    state = state._replace(workers=state.workers._replace(failures=jnp.array([0, 3, 1], jnp.int32)))
    mended = forget(state.workers, jnp.array([False, True, False]))
    weight = np.asarray(state.workers.weight)
    for name in targets:
        old = np.array(state.workers.scaled_dual[name])
        kept = old.copy()
        kept[1] = 0
        mean = np.tensordot(weight, kept, 1) / weight.sum()
        np.testing.assert_allclose(mended.scaled_dual[name], kept - mean, atol=1e-12)
        np.testing.assert_allclose(np.tensordot(weight, mended.scaled_dual[name], 1), 0, atol=1e-12)
        moved = mended.contribution[name] - state.workers.contribution[name]
        np.testing.assert_allclose(moved, mended.scaled_dual[name] - old, atol=1e-12)
        # So the mean of the contributions, which is z, stays.
        stored = np.tensordot(weight, mended.contribution[name], 1) / weight.sum()
        np.testing.assert_allclose(stored, state.shared.z[name], atol=1e-12)
    assert mended.failures.tolist() == [0, 0, 1]


def test_forgetting_nobody_changes_nothing_even_while_duals_do_not_sum_to_zero(after_two_rounds, tree_round, targets):
    rule = RULES[0]
    state, _ = tree_round(rule, after_two_rounds(rule), targets, jnp.array([True, False, False]))
    assert abs(np.tensordot(state.workers.weight, state.workers.scaled_dual["b"], 1)).max() > 1e-3
    same(forget(state.workers, jnp.zeros(3, bool)), state.workers)


def test_forgetting_is_harmless_without_duals(after_two_rounds):
    state = after_two_rounds(FedAvg())
    same(forget(state.workers, jnp.array([True, False, False])), state.workers)


def test_finiteness_is_judged_per_worker_over_all_leaves():
    tree = {"a": jnp.array([[1.0, 2.0], [3.0, jnp.inf], [5.0, 6.0]]), "b": jnp.array([0.0, 0.0, -jnp.nan])}
    assert is_finite(tree).tolist() == [True, False, False]
