"""Convex problems: gradients, proxes and centralised solutions against the conditions that define them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus.problems import lasso, logistic, quadratics, relative_distance, ridge
from admm_jax.errors import InvalidInput

PROBLEMS = {
    "quadratics": lambda: quadratics([1.5, -0.4, 3.0], [2.0, 1.0, -1.0], l1=0.3),
    "lasso": lambda: lasso(workers=3, dim=5, seed=2, l1=0.7),
    "ridge": lambda: ridge(workers=3, dim=5, seed=3, l2=1.1),
    "ridge with l1": lambda: ridge(workers=3, dim=5, seed=3, l1=0.6, l2=1.1),
    "logistic": lambda: logistic(workers=3, dim=5, seed=4, l2=0.2),
    "logistic with l1": lambda: logistic(workers=3, dim=5, seed=4, l1=0.15),
}
every_problem = pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)


@jax.jit
def prox(problem, centre, penalty):
    return problem.prox(centre, penalty)


@every_problem
@pytest.mark.parametrize("penalty", [0.5, 40.0])
def test_prox_is_stationary(x64, make, penalty):
    problem = make()
    centre = jax.random.normal(jax.random.key(1), (3, *problem.origin.shape)) * 2
    theta = prox(problem, centre, penalty)
    np.testing.assert_allclose(problem.gradient(theta) + penalty * (theta - centre), 0, atol=1e-11)


@every_problem
@pytest.mark.parametrize("weights", [None, [0.4, 0.1, 2.5]])
def test_centralised_solution_satisfies_the_optimality_conditions(x64, make, weights):
    problem = make()
    z = problem.centralised(weights)
    grads = problem.gradient(jnp.broadcast_to(z, (3, *z.shape)))
    slope = np.tensordot([1.0] * 3 if weights is None else weights, grads, 1) + problem.regularizer.l2 * z
    l1 = problem.regularizer.l1
    np.testing.assert_allclose(np.where(z != 0, slope + l1 * np.sign(z), 0), 0, atol=1e-11)
    assert (np.abs(slope[z == 0]) <= l1 + 1e-11).all()
    assert z.dtype == np.float64


def test_a_strong_l1_term_selects_coefficients():
    problem = lasso(workers=3, dim=12, seed=6, l1=1.5)
    assert 0 < (problem.centralised() != 0).sum() < 12
    assert not lasso(workers=3, dim=12, seed=6, l1=1e3).centralised().any()


def test_logistic_gradient_is_that_of_its_objective(x64):
    problem = logistic(workers=2, dim=4, seed=8, l2=0.3)
    theta = jax.random.normal(jax.random.key(3), (2, 4))

    def objective(theta):
        losses = jnp.logaddexp(0, -jnp.einsum("wnd,wd->wn", problem.margins, theta)).mean(axis=1)
        return (losses + 0.15 * jnp.square(theta).sum(axis=1)).sum()

    np.testing.assert_allclose(problem.gradient(theta), jax.grad(objective)(theta), atol=1e-12)


def test_newton_converges_from_far_away(x64):
    problem = logistic(workers=2, dim=3, seed=9, l2=0.01)
    centre = jnp.array([[40.0, -70.0, 10.0], [-300.0, 0.0, 5.0]])
    theta = prox(problem, centre, 1e-3)
    np.testing.assert_allclose(problem.gradient(theta) + 1e-3 * (theta - centre), 0, atol=1e-12)


@pytest.mark.parametrize("make", [lasso, ridge, logistic])
def test_data_depend_on_the_seed_alone(make):
    first, again, other = (jax.tree.leaves(make(2, 3, seed)) for seed in (11, 11, 12))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[-1], other[-1]) or not np.array_equal(first[0], other[0])


def test_curvature_of_the_data_suits_a_penalty_of_one():
    spectrum = lasso(workers=3, dim=30, seed=1).eigenvalues
    assert spectrum.min() > 0.5
    assert spectrum.max() < 1.6


def test_distance_is_relative_unless_the_target_is_zero():
    assert relative_distance(np.array([3.0, 4.0]), np.array([3.0, 3.0])) == pytest.approx(1 / np.sqrt(18))
    assert relative_distance(np.array([3.0, 4.0]), np.zeros(2)) == pytest.approx(5)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("curvature", lambda: quadratics([], [])),
        ("curvature", lambda: quadratics([1.0, np.nan], [0.0, 1.0])),
        ("centre", lambda: quadratics([1.0, 2.0], [0.0])),
        ("centre", lambda: quadratics([1.0], [np.inf])),
        ("workers", lambda: lasso(workers=0)),
        ("dim", lambda: ridge(dim=0)),
        ("seed", lambda: logistic(seed=-1)),
        ("l1", lambda: lasso(l1=-0.5)),
        ("l2", lambda: ridge(l2=np.nan)),
        ("l2", lambda: logistic(l2=0.0)),
    ],
)
def test_values_outside_their_range_are_refused_by_name(field, make):
    with pytest.raises(InvalidInput) as refused:
        make()
    assert refused.value.field == field
