"""g(z) = l1 |z|_1 + l2/2 |z|^2 and its prox."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ADMM, Regularizer
from admm_jax.consensus.problems import lasso, quadratics, relative_distance, ridge
from admm_jax.consensus.solve import solve
from admm_jax.errors import InvalidInput


@pytest.mark.parametrize(("l1", "l2"), [(0.7, 0.0), (0.0, 1.9), (0.7, 1.9)])
def test_prox_is_the_closed_form_and_no_other_point_is_better(x64, l1, l2):
    mean = {"a": jnp.array([1.5, -0.2, -3.0]), "b": jnp.array(0.05)}
    rho = 2.5
    z = Regularizer(l1, l2).prox(mean, rho)
    for name, v in mean.items():
        v = np.asarray(v)
        expected = np.sign(v) * np.maximum(np.abs(v) - l1 / rho, 0) * rho / (rho + l2)
        np.testing.assert_allclose(z[name], expected, atol=1e-12)

        def cost(x, v=v):
            return l1 * abs(x) + l2 / 2 * x**2 + rho / 2 * (x - v) ** 2

        for nudge in (-1e-4, 1e-4):
            assert (cost(np.asarray(z[name])) < cost(np.asarray(z[name]) + nudge)).all()


def test_prox_with_a_penalty_per_coordinate(x64):
    z = Regularizer(l1=0.6).prox({"a": jnp.array([1.0, 1.0])}, {"a": jnp.array([2.0, 0.5])})
    np.testing.assert_allclose(z["a"], [0.7, 0.0], atol=1e-12)


def test_no_regulariser_is_the_identity():
    mean = jnp.ones(3)
    assert Regularizer().prox(mean, 1.0) is mean


def test_the_total_penalty_counts_the_weights(x64):
    """min sum w_i f_i + g, whatever the weights sum to."""
    a, c, w = np.array([1.0, 3.0]), np.array([1.0, 4.0]), np.array([0.2, 0.5])
    for regularizer, expected in [
        (Regularizer(l1=0.9), ((w * a * c).sum() - 0.9) / (w * a).sum()),
        (Regularizer(l2=0.4), (w * a * c).sum() / ((w * a).sum() + 0.4)),
        (Regularizer(l1=10.0), 0.0),
    ]:
        rule = ADMM(inner="exact", regularizer=regularizer)
        run = solve(rule, quadratics(a, c), rounds=150, penalty=1.4, weights=w)
        assert run.z[-1] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("make", [lasso, ridge])
def test_consensus_reaches_the_centralised_solution(x64, make):
    problem, weights = make(workers=3, dim=6, seed=5, l1=0.4), [1.0, 0.5, 1.7]
    rule = ADMM(inner="exact", regularizer=problem.regularizer)
    run = solve(rule, problem, rounds=60, penalty=0.9, weights=weights)
    assert relative_distance(run.z[-1], problem.centralised(weights)) < 1e-8
    np.testing.assert_array_equal(run.z[-1] == 0, problem.centralised(weights) == 0)


@pytest.mark.parametrize("field", ["l1", "l2"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_weights_outside_their_range_are_refused(field, value):
    with pytest.raises(InvalidInput) as refused:
        Regularizer(**{field: value})
    assert refused.value.field == field
