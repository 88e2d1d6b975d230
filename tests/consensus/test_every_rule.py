"""One table of properties over every rule, on trees of several leaves in single precision."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ADMM, EASGD, DiLoCo, FedAvg, FedProx, GradientAveraging, Regularizer

RULES = {
    "admm-exact": ADMM(inner="exact"),
    "admm-gradient": ADMM(inner="gradient"),
    "admm-proximal": ADMM(inner="proximal"),
    "admm-hybrid": ADMM(inner="hybrid"),
    "admm-worker": ADMM(restart="worker"),
    "admm-relaxed-leaky": ADMM(inner="exact", over_relaxation=1.6, dual_leak=0.05),
    "admm-regularised": ADMM(inner="exact", regularizer=Regularizer(l1=0.2, l2=0.3)),
    "admm-dual-first": ADMM(order="dual_first"),
    "easgd": EASGD(elasticity=0.6),
    "diloco": DiLoCo(),
    "fedavg": FedAvg(),
    "fedprox-exact": FedProx(inner="exact"),
    "fedprox-gradient": FedProx(inner="gradient"),
    "fedprox-proximal": FedProx(inner="proximal"),
    "gradient": GradientAveraging(),
}
EVERYONE = np.ones(3, bool)
WEIGHTS = np.array([0.5, 1.0, 2.0], np.float32)

every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def close(a, b, atol=2e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), a, b)


@pytest.mark.slow
@every_rule
def test_states_keep_structure_dtype_and_compiled_program(rule, tree_round, params, targets):
    # A traced function of its own, so that its cache counts these calls alone.
    one_round = jax.jit(lambda state, who: tree_round.__wrapped__(rule, state, targets, who))
    state = first = rule.init(params(jnp.float32), 3, penalty=0.7, weights=WEIGHTS)
    for number in range(3):
        state, residuals = one_round(state, EVERYONE)
        assert state.shared.round == number + 1
    assert one_round._cache_size() == 1
    assert jax.tree.structure(state) == jax.tree.structure(first)
    assert [x.dtype for x in jax.tree.leaves(state)] == [x.dtype for x in jax.tree.leaves(first)]
    assert [x.shape for x in jax.tree.leaves(state)] == [x.shape for x in jax.tree.leaves(first)]
    assert all(value.shape == () and jnp.isfinite(value) for value in residuals)
    with jax.disable_jit():
        plain, plain_residuals = tree_round(rule, first, targets, jnp.asarray(EVERYONE))
    compiled, compiled_residuals = one_round(first, EVERYONE)
    close((plain, plain_residuals), (compiled, compiled_residuals), atol=1e-5)


@every_rule
def test_equal_workers_stay_equal(rule, tree_round, params, targets):
    targets = jax.tree.map(lambda leaf: np.repeat(leaf[:1], 3, axis=0), targets)
    state = rule.init(params(jnp.float32), 3, penalty=0.7, weights=WEIGHTS)
    for _ in range(3):
        state, residuals = tree_round(rule, state, targets, EVERYONE)
    for tree in (state.workers.theta, state.workers.scaled_dual, state.workers.contribution):
        jax.tree.map(lambda leaf: np.testing.assert_array_equal(leaf, jnp.broadcast_to(leaf[:1], leaf.shape)), tree)
    if rule.regularizer == Regularizer() and rule.duals_cancel:
        assert residuals.cosine == pytest.approx(1, abs=1e-2)


@every_rule
def test_numbering_the_workers_differently_numbers_the_state_differently(rule, tree_round, params, targets):
    order = np.array([2, 0, 1])
    who = [EVERYONE, np.array([True, False, True])]
    state = rule.init(params(jnp.float32), 3, penalty=0.7, weights=WEIGHTS)
    other = rule.init(params(jnp.float32), 3, penalty=0.7, weights=WEIGHTS[order])
    reordered = jax.tree.map(lambda leaf: leaf[order], targets)
    for mask in who:
        state, residuals = tree_round(rule, state, targets, mask)
        other, other_residuals = tree_round(rule, other, reordered, mask[order])
    close(other.shared, state.shared)
    close(other.workers, jax.tree.map(lambda leaf: leaf[order], state.workers))
    close(other_residuals, residuals, atol=1e-5)


@every_rule
def test_a_round_without_anyone_changes_nothing(rule, tree_round, params, targets):
    state = rule.init(params(jnp.float32), 3, penalty=0.7, weights=WEIGHTS)
    state, _ = tree_round(rule, state, targets, EVERYONE)
    after, residuals = tree_round(rule, state, targets, ~EVERYONE)
    jax.tree.map(np.testing.assert_array_equal, after.workers, state.workers)
    close(after.shared.z, state.shared.z, atol=1e-6)
    assert residuals.dual == pytest.approx(0, abs=1e-5)
    assert residuals.failed == 0


@every_rule
def test_rules_are_values(rule):
    assert dataclasses.is_dataclass(rule)
    assert dataclasses.replace(rule) == rule
    assert hash(dataclasses.replace(rule)) == hash(rule)
