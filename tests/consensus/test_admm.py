"""Consensus ADMM against closed forms; example 1 is f = x^2/2 and 3 (x - 4)^2 / 2 with rho = 1, from 0."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ADMM, Regularizer, local_step, pull_strength
from admm_jax.consensus.problems import quadratics
from admm_jax.consensus.solve import solve
from admm_jax.errors import InvalidInput

EXACT = ADMM(inner="exact")


def example_1():
    return quadratics([1, 3], [0, 4])


def test_first_example_follows_its_closed_form(x64):
    run = solve(EXACT, example_1(), rounds=30)
    k = np.arange(1, 31)
    z = 3 * (1 - 2.0**-k)
    residual = 3 / np.sqrt(2) * 2.0 ** -(k - 1)
    np.testing.assert_allclose(run.z, z, atol=1e-10)
    np.testing.assert_allclose(run.dual, np.stack([-z, z], axis=1), atol=1e-10)
    np.testing.assert_allclose(run.residuals.primal, residual, atol=1e-10)
    np.testing.assert_allclose(run.residuals.dual, residual, atol=1e-10)


def test_weighted_duals_sum_to_zero_and_z_is_the_weighted_mean_of_theta(x64):
    weights = np.array([0.5, 2.0, 1.3])
    problem = quadratics([1.0, 4.0, 0.3], [2.0, -1.0, 7.0])
    run = solve(EXACT, problem, rounds=200, penalty=1.7, weights=weights)
    np.testing.assert_allclose(run.dual @ weights, 0, atol=1e-10)
    np.testing.assert_allclose(run.z, run.theta @ weights / weights.sum(), atol=1e-10)
    pull = weights * np.array([1.0, 4.0, 0.3])
    optimum = pull @ [2.0, -1.0, 7.0] / pull.sum()
    np.testing.assert_allclose(run.z[-1], optimum, atol=1e-10)
    np.testing.assert_allclose(run.z[-1], problem.centralised(weights), atol=1e-10)


@pytest.mark.parametrize("alpha", [1.0, 0.7, 1.6])
def test_errors_of_z_and_dual_shrink_at_their_own_rates(x64, alpha):
    a, rho, centre = 2.0, 0.5, np.array([1.0, -2.0, 5.0])
    rule = dataclasses.replace(EXACT, over_relaxation=alpha)
    run = solve(rule, quadratics([a] * 3, centre), rounds=12, penalty=rho)
    z_error = np.concatenate([[0.0], run.z]) - centre.mean()
    dual_error = np.concatenate([np.zeros((1, 3)), run.dual]) - a * (centre - centre.mean())
    np.testing.assert_allclose(z_error[1:], (1 - alpha * a / (a + rho)) * z_error[:-1], atol=1e-10)
    np.testing.assert_allclose(dual_error[1:], (1 - alpha * rho / (a + rho)) * dual_error[:-1], atol=1e-10)


def test_over_relaxation_keeps_the_weighted_duals_at_zero(x64):
    weights = np.array([0.4, 1.1])
    run = solve(ADMM(inner="exact", over_relaxation=1.5), example_1(), rounds=80, weights=weights)
    np.testing.assert_allclose(run.dual @ weights, 0, atol=1e-10)
    np.testing.assert_allclose(run.z[-1], 3.3 * 4 / (0.4 + 3.3), atol=1e-10)


@pytest.mark.parametrize(("leak", "rounded"), [(0.01, 2.9854), (0.1, 2.88), (0.5, 2.6667)])
def test_a_leaky_dual_stops_short(x64, leak, rounded):
    run = solve(ADMM(inner="exact", dual_leak=leak), example_1(), rounds=120)
    assert run.z[-1] == pytest.approx(12 * (1 + 2 * leak) / (4 + 10 * leak), abs=1e-10)
    assert run.z[-1] == pytest.approx(rounded, abs=5e-5)


def test_a_dual_that_leaks_entirely_still_keeps_the_last_gap(x64):
    run = solve(ADMM(inner="exact", dual_leak=1.0), example_1(), rounds=3)
    np.testing.assert_allclose(run.dual, run.theta - run.z[:, None], atol=1e-12)


@pytest.mark.parametrize("restart", ["consensus", "worker"])
@pytest.mark.parametrize("inner", ["proximal", "gradient", "hybrid"])
def test_inexact_solvers_reach_the_optimum_from_either_start(x64, inner, restart):
    run = solve(ADMM(inner=inner, restart=restart), example_1(), rounds=400, steps=5, lr=0.1)
    assert run.z[-1] == pytest.approx(3, abs=1e-9)
    np.testing.assert_allclose(run.dual[-1], [-3, 3], atol=1e-9)


def test_the_two_starts_take_different_paths(x64):
    paths = [solve(ADMM(restart=restart), example_1(), rounds=3, steps=2).z for restart in ("consensus", "worker")]
    assert abs(paths[0][0] - paths[1][0]) < 1e-12
    assert abs(paths[0][-1] - paths[1][-1]) > 1e-3


def test_lambda_stays_when_rho_changes(x64):
    run = solve(EXACT, example_1(), rounds=2, penalty=[1.0, 2.0])
    assert run.z[1] == pytest.approx(2.1, abs=1e-10)


def test_changing_rho_rescales_u_leaf_by_leaf(x64):
    rule = EXACT
    state = rule.init({"a": jnp.ones(2), "b": jnp.zeros(())}, 2, penalty=3.0)
    dual = {"a": jnp.array([[1.0, -2.0], [-1.0, 2.0]]), "b": jnp.array([4.0, -4.0])}
    state = state._replace(workers=state.workers._replace(scaled_dual=dual))
    changed = rule.change_penalty(state, {"a": jnp.array([6.0, 1.5]), "b": jnp.array(12.0)})
    np.testing.assert_allclose(changed.workers.scaled_dual["a"], [[0.5, -4.0], [-0.5, 4.0]], atol=1e-12)
    np.testing.assert_allclose(changed.workers.scaled_dual["b"], [1.0, -1.0], atol=1e-12)
    back = rule.change_penalty(changed, 3.0)
    jax.tree.map(np.testing.assert_allclose, back.workers.scaled_dual, dual)


def test_one_worker_is_the_proximal_point_iteration(x64):
    run = solve(EXACT, quadratics([2.5], [-3.0]), rounds=15, penalty=0.8)
    np.testing.assert_allclose(run.dual, 0, atol=1e-12)
    z = 0.0
    for value in run.z:
        z = (2.5 * -3.0 + 0.8 * z) / (2.5 + 0.8)
        assert value == pytest.approx(z, abs=1e-10)


def test_negative_curvature_is_allowed_where_the_sum_is_convex(x64):
    run = solve(EXACT, quadratics([-1.0, 3.0], [1.0, 2.0]), rounds=300, penalty=4.0)
    assert run.z[-1] == pytest.approx((-1 * 1 + 3 * 2) / 2, abs=1e-9)
    np.testing.assert_allclose(run.dual[-1], [run.z[-1] - 1, -3 * (run.z[-1] - 2)], atol=1e-9)


def test_a_penalty_per_coordinate_is_as_many_scalar_problems(x64, tree_round, params, targets):
    rule = ADMM(inner="exact", over_relaxation=1.2)
    penalty = jax.tree.map(
        lambda leaf: 0.3 + jnp.abs(jnp.sin(jnp.arange(leaf.size) + 1.0)).reshape(leaf.shape),
        params(jnp.float64),
    )
    state = rule.init(params(jnp.float64), 3, penalty=penalty)
    for _ in range(4):
        state, _ = tree_round(rule, state, targets, jnp.ones(3, bool))
    for name, index in [("a", (1, 2)), ("b", (3,)), ("c", ())]:
        one = rule.init(params(jnp.float64)[name][index], 3, penalty=penalty[name][index])
        for _ in range(4):
            one, _ = tree_round(rule, one, targets[name][(slice(None), *index)], jnp.ones(3, bool))
        np.testing.assert_allclose(state.shared.z[name][index], one.shared.z, atol=1e-12)
        np.testing.assert_allclose(
            state.workers.scaled_dual[name][(slice(None), *index)], one.workers.scaled_dual, atol=1e-12
        )


def test_what_each_inner_solver_shows_to_the_optimiser(x64):
    rho, c, z, u, theta, grad = 0.7, 0.25, 1.5, 0.4, 2.0, -1.1
    seen = {
        "proximal": grad,
        "exact": grad,
        "hybrid": grad + rho * u,
        "gradient": grad + rho * (theta - z + u),
    }
    pulled = {"proximal": (theta + c * (z - u)) / (1 + c), "hybrid": (theta + c * z) / (1 + c)}
    for inner, expected in seen.items():
        rule = ADMM(inner=inner)
        shared, workers = rule.init(jnp.array(z), 1, penalty=rho)
        worker = jax.tree.map(lambda leaf: leaf[0], workers)._replace(scaled_dual=jnp.array(u))
        assert rule.gradient(grad, theta, worker, shared) == pytest.approx(expected, abs=1e-12)
        assert rule.pull(theta, worker, shared, c) == pytest.approx(pulled.get(inner, theta), abs=1e-12)


def test_a_proximal_step_minimises_the_penalised_linear_model(x64):
    lr, rho, z, u, theta, grad = 0.3, 1.9, -0.5, 0.2, 1.4, 0.6
    rule = ADMM(inner="proximal")
    state = rule.init(jnp.array(z), 1, penalty=rho)
    worker = jax.tree.map(lambda leaf: leaf[0], state.workers)._replace(scaled_dual=jnp.array(u))
    new = local_step(rule, theta, grad, worker, state.shared, lambda x, g: x - lr * g, lr * rho)
    assert grad + (new - theta) / lr + rho * (new - z + u) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("kappa", "steps"), [(0.3, 16), (2.0, 3)])
def test_pulls_alone_shrink_the_distance_by_exp_minus_kappa(x64, kappa, steps):
    rule = ADMM(inner="proximal")
    shared, workers = rule.init(jnp.array([1.0, 2.0]), 1)
    worker = jax.tree.map(lambda leaf: leaf[0], workers)._replace(scaled_dual=jnp.array([0.5, -0.5]))
    theta = start = jnp.array([4.0, -3.0])
    for _ in range(steps):
        theta = rule.pull(theta, worker, shared, pull_strength(kappa, steps))
    centre = rule.centre(worker, shared)
    np.testing.assert_allclose(theta - centre, np.exp(-kappa) * (start - centre), atol=1e-12)


def test_weights_of_another_length_are_refused():
    with pytest.raises(ValueError, match="one per worker"):
        EXACT.init(jnp.zeros(2), 3, weights=jnp.ones(2))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("inner", "newton"),
        ("restart", "zero"),
        ("over_relaxation", 0.0),
        ("over_relaxation", 2.0),
        ("over_relaxation", float("nan")),
        ("dual_leak", -0.1),
        ("dual_leak", 1.1),
        ("dual_leak", float("nan")),
    ],
)
def test_settings_outside_their_range_are_refused_by_name(field, value):
    with pytest.raises(InvalidInput) as refused:
        ADMM(**{field: value})
    assert refused.value.field == field


def test_a_regulariser_changes_where_duals_sum_to(x64):
    """At the optimum sum w lambda is a subgradient of g, so the sum is 0 only without one."""
    problem = quadratics([2.0, 1.0], [3.0, 1.0], l1=0.6)
    run = solve(ADMM(inner="exact", regularizer=Regularizer(l1=0.6)), problem, rounds=100)
    assert run.z[-1] == pytest.approx((2 * 3 + 1 - 0.6) / 3, abs=1e-10)
    assert run.dual[-1].sum() == pytest.approx(0.6, abs=1e-9)


@pytest.mark.parametrize("rho", [0.5, 2.0])
def test_dual_first_in_closed_form(x64, rho):
    # Equal curvature a: with d = z - c - mean u, d shrinks by rho/(a + rho) per round, z - c = (rho - a)/rho d and
    # mean u = -a/rho d, from the second round on; the first starts at u = 0.
    a, centres = 2.0, np.array([1.0, 6.0])
    run = solve(ADMM(inner="exact", order="dual_first"), quadratics([a, a], centres), rounds=12, penalty=rho)
    d = -centres.mean() * (rho / (a + rho)) ** np.arange(1, 13)
    np.testing.assert_allclose(run.z - centres.mean(), (rho - a) / rho * d, atol=1e-10)


def test_dual_first_equals_a_loop_and_reaches_the_optimum(x64):
    rule = ADMM(inner="gradient", order="dual_first")
    curvature, centre = np.array([1.0, 3.0]), np.array([0.0, 4.0])
    run = solve(rule, quadratics(curvature, centre), rounds=300, penalty=2.0, steps=5, lr=0.1)
    z, dual = 0.0, np.zeros(2)
    for number in range(20):
        theta = np.full(2, z)
        for _ in range(5):
            theta = theta - 0.1 * (curvature * (theta - centre) + 2 * (theta - z + dual))
        dual = dual + theta - z
        z = (theta + dual).mean()
        assert run.z[number] == pytest.approx(z, abs=1e-12)
    assert run.z[-1] == pytest.approx(3, abs=1e-8)
