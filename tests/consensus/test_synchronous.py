"""Gradient averaging: one mean per optimiser step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import GradientAveraging, LocalReduction
from admm_jax.consensus.problems import quadratics
from admm_jax.consensus.solve import solve

RULE = GradientAveraging()


def average(grads, weight, participates):
    return jax.jit(lambda g, w, p: RULE.average_gradients(g, w, p, LocalReduction()))(
        grads, jnp.array(weight), jnp.array(participates)
    )


def test_all_workers_follow_one_worker_on_the_weighted_mean_objective(x64):
    a, c, w = np.array([1.0, 2.5, 0.4]), np.array([3.0, -1.0, 2.0]), np.array([1.0, 0.3, 2.0])
    many = solve(RULE, quadratics(a, c), rounds=8, steps=3, lr=0.2, weights=w)
    mean_curvature = (w * a).sum() / w.sum()
    one = solve(RULE, quadratics([mean_curvature], [(w * a * c).sum() / (w * a).sum()]), rounds=8, steps=3, lr=0.2)
    np.testing.assert_allclose(many.z, one.z, atol=1e-12)
    np.testing.assert_allclose(many.theta, np.repeat(many.z[:, None], 3, axis=1), atol=1e-12)


def test_gradients_that_are_not_finite_are_left_out_whole(x64):
    grads = {"a": jnp.array([[1.0, 2.0], [jnp.nan, 5.0], [4.0, -2.0]]), "b": jnp.array([3.0, 100.0, 6.0])}
    mean = average(grads, [2.0, 1.0, 1.0], [True] * 3)
    np.testing.assert_allclose(mean["a"], [[2.0, 2 / 3]] * 3, atol=1e-12)
    np.testing.assert_allclose(mean["b"], [4.0] * 3, atol=1e-12)


def test_absent_workers_are_left_out(x64):
    mean = average(jnp.array([1.0, 7.0, 4.0]), [1.0, 5.0, 2.0], [True, False, True])
    np.testing.assert_allclose(mean, [3.0] * 3, atol=1e-12)


@pytest.mark.parametrize("case", ["all NaN", "all absent"])
def test_nobody_to_average_gives_zero(case):
    grads = jnp.full((2, 3), jnp.nan if case == "all NaN" else 1.0)
    np.testing.assert_array_equal(average(grads, [1.0, 2.0], [case == "all NaN"] * 2), np.zeros((2, 3)))


def test_an_absent_worker_neither_votes_nor_holds_back(x64):
    # Four workers at 0 pulled towards 4 (the present one) or elsewhere: half way there per step of 0.5.
    curvature, centre = [1.0] * 4, [4.0, -7.0, 9.0, 1.0]
    alone = np.tile([True, False, False, False], (2, 1))
    run = solve(RULE, quadratics(curvature, centre), rounds=2, steps=1, lr=0.5, participates=alone)
    np.testing.assert_allclose(run.z, [2.0, 3.0], atol=1e-12)
