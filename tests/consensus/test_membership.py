"""Workers that join and leave."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ADMM, FedAvg, LocalReduction, join, recentre, remove
from admm_jax.consensus.problems import quadratics

RULE = ADMM(inner="exact")
WEIGHTS = np.array([1.0, 0.4, 1.5])


@pytest.fixture
def state(x64, tree_round, params, targets):
    state = RULE.init(params(jnp.float64), 3, penalty=0.8, weights=WEIGHTS)
    for _ in range(3):
        state, _ = tree_round(RULE, state, targets, jnp.ones(3, bool))
    return state


def weighted_sum(state, tree):
    return jax.tree.map(lambda leaf: np.tensordot(state.workers.weight, leaf, 1), tree)


def test_joining_leaves_z_and_the_sum_of_duals(exchange, state, targets):
    bigger = join(state, weight=0.9)
    np.testing.assert_allclose(bigger.workers.weight, [1.0, 0.4, 1.5, 0.9])
    for name in targets:
        np.testing.assert_array_equal(bigger.workers.theta[name][3], state.shared.z[name])
        assert not bigger.workers.scaled_dual[name][3].any()
        np.testing.assert_allclose(weighted_sum(bigger, bigger.workers.scaled_dual)[name], 0, atol=1e-12)
    exchanged, _ = exchange(RULE, bigger.workers.theta, bigger, jnp.zeros(4, bool))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), exchanged.shared.z, state.shared.z)


def test_leaving_recentres_those_who_stay(exchange, state, targets):
    smaller = remove(state, 1, LocalReduction())
    weight = WEIGHTS[[0, 2]]
    np.testing.assert_allclose(smaller.workers.weight, weight)
    for name in targets:
        old = np.asarray(state.workers.scaled_dual[name])[[0, 2]]
        mean = np.tensordot(weight, old, 1) / weight.sum()
        np.testing.assert_allclose(smaller.workers.scaled_dual[name], old - mean, atol=1e-12)
        np.testing.assert_allclose(weighted_sum(smaller, smaller.workers.scaled_dual)[name], 0, atol=1e-12)
        np.testing.assert_array_equal(smaller.workers.theta[name], state.workers.theta[name][jnp.array([0, 2])])
    exchanged, _ = exchange(RULE, smaller.workers.theta, smaller, jnp.zeros(2, bool))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), exchanged.shared.z, state.shared.z)


def test_after_coming_and_going_the_optimum_is_that_of_those_present(x64):
    def rounds(state, problem, count):
        everyone = jnp.ones(problem.num_workers, bool)

        @jax.jit
        def one(state):
            theta = problem.prox(jax.vmap(RULE.centre, (0, None))(state.workers, state.shared), 1.3)
            return RULE.exchange(theta, state, participates=everyone, reduction=LocalReduction())[0]

        for _ in range(count):
            state = one(state)
        return state

    state = rounds(RULE.init(jnp.zeros(()), 2, penalty=1.3), quadratics([1.0, 3.0], [0.0, 4.0]), 10)
    state = rounds(join(state, weight=2.0), quadratics([1.0, 3.0, 0.5], [0.0, 4.0, -6.0]), 80)
    assert state.shared.z == pytest.approx((12 - 6) / 5, abs=1e-10)
    state = rounds(remove(state, 1, LocalReduction()), quadratics([1.0, 0.5], [0.0, -6.0]), 80)
    assert state.shared.z == pytest.approx(-6 / 2, abs=1e-10)


def test_rules_without_duals_gain_and_lose_workers_too(params):
    state = FedAvg().init(params(jnp.float32), 2)
    assert remove(join(state), 0, LocalReduction()).workers.weight.shape == (2,)
    assert recentre(state.workers, LocalReduction()) is state.workers


@pytest.mark.parametrize(("workers", "leaving"), [(3, 3), (3, -1), (1, 0)])
def test_who_cannot_leave(workers, leaving):
    with pytest.raises(ValueError, match=f"cannot remove worker {leaving} of {workers}"):
        remove(RULE.init(jnp.zeros(2), workers), leaving, LocalReduction())
