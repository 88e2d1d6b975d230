"""EASGD and DiLoCo: their equations by hand, their limits, and who is absent."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import EASGD, DiLoCo, FedAvg
from admm_jax.consensus.problems import quadratics
from admm_jax.consensus.solve import solve
from admm_jax.errors import InvalidInput

CURVATURE, CENTRE = np.array([1.0, 3.0]), np.array([0.0, 4.0])


def local(theta, steps, lr):
    return CENTRE + (theta - CENTRE) * (1 - lr * CURVATURE) ** steps


def test_easgd_equals_a_loop(x64):
    run = solve(EASGD(elasticity=0.6), quadratics(CURVATURE, CENTRE), rounds=7, weights=[0.5, 1.5], steps=3, lr=0.1)
    z, theta, weights = 0.0, np.zeros(2), np.array([0.5, 1.5])
    for number in range(7):
        theta = local(theta, 3, 0.1)
        z, theta = z + 0.6 * (weights @ theta / 2 - z), theta - 0.3 * (theta - z)
        assert run.z[number] == pytest.approx(z, abs=1e-12)


def test_easgd_by_hand(x64, exchange):
    # Two equal workers, beta 0.8: alpha 0.4. theta = (1, 3), z = 0.5 -> theta - 0.4 (theta - 0.5), z + 0.8 (2 - 0.5).
    rule = EASGD(elasticity=0.8)
    state = rule.init(jnp.float64(0.5), 2)
    state, _ = exchange(rule, jnp.array([1.0, 3.0]), state, np.ones(2, bool))
    np.testing.assert_allclose(state.workers.theta, [0.8, 2.0], atol=1e-12)
    np.testing.assert_allclose(state.shared.z, 1.7, atol=1e-12)
    # What the workers gave, the centre got.
    np.testing.assert_allclose(state.workers.theta.sum() + state.shared.z, 1 + 3 + 0.5, atol=1e-12)


def test_an_elastic_worker_that_is_absent_neither_pulls_nor_is_pulled(x64, exchange):
    rule = EASGD(elasticity=0.8)
    state = rule.init(jnp.float64(0.5), 2)
    state, _ = exchange(rule, jnp.array([1.0, 3.0]), state, np.array([True, False]))
    np.testing.assert_allclose(state.workers.theta, [0.8, 0.5], atol=1e-12)
    np.testing.assert_allclose(state.shared.z, 0.5 + 0.4 * 0.5, atol=1e-12)


def test_diloco_equals_a_loop(x64):
    rule = DiLoCo(outer_lr=0.5, outer_momentum=0.3)
    run = solve(rule, quadratics(CURVATURE, CENTRE), rounds=8, steps=4, lr=0.1)
    z, momentum = 0.0, 0.0
    for number in range(8):
        delta = z - local(np.full(2, z), 4, 0.1).mean()
        momentum = 0.3 * momentum + delta
        z -= 0.5 * (delta + 0.3 * momentum)
        assert run.z[number] == pytest.approx(z, abs=1e-12)


def test_diloco_with_a_plain_outer_step_is_fedavg(x64):
    problem = quadratics(CURVATURE, CENTRE)
    plain = solve(FedAvg(), problem, rounds=9, steps=5, lr=0.1)
    outer = solve(DiLoCo(outer_lr=1, outer_momentum=0), problem, rounds=9, steps=5, lr=0.1)
    np.testing.assert_allclose(outer.z, plain.z, atol=1e-12)


def test_diloco_stands_where_fedavg_does(x64):
    problem = quadratics(CURVATURE, CENTRE)
    outer = solve(DiLoCo(), problem, rounds=300, steps=10, lr=0.1)
    assert outer.z[-1] == pytest.approx(2.394845, abs=1e-6)


def test_momentum_waits_while_everyone_is_absent(x64, exchange):
    rule = DiLoCo(outer_lr=0.5, outer_momentum=0.5)
    state = rule.init(jnp.float64(1.0), 2)
    state, _ = exchange(rule, jnp.array([2.0, 4.0]), state, np.ones(2, bool))
    assert state.shared.momentum == pytest.approx(-2)
    after, _ = exchange(rule, jnp.array([9.0, 9.0]), state, np.zeros(2, bool))
    assert after.shared.z == state.shared.z
    assert after.shared.momentum == state.shared.momentum


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: EASGD(elasticity=0.0), "elasticity"),
        (lambda: EASGD(elasticity=1.2), "elasticity"),
        (lambda: DiLoCo(outer_lr=0.0), "outer_lr"),
        (lambda: DiLoCo(outer_momentum=1.0), "outer_momentum"),
        (lambda: DiLoCo(outer_momentum=float("nan")), "outer_momentum"),
    ],
)
def test_what_does_not_fit_is_refused(make, field):
    with pytest.raises(InvalidInput) as caught:
        make()
    assert caught.value.field == field
