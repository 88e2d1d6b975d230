"""Rounds in which some workers are absent."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ADMM, FedAvg
from admm_jax.consensus.problems import quadratics
from admm_jax.consensus.solve import solve

# f = x^2/2 and 3 (x - 4)^2 / 2, rho = 1, exact: theta_0 = (z - u_0) / 2, theta_1 = (12 + z - u_1) / 4. The
# contributions theta + u (with the u of before) are (0, 3), (0, 3), (0, 4.5), (0.375, 4.5), the same and
# (0.1875, 5.296875).
HAND_WORKED = [
    # who,          z,         theta,              u
    ([True, True], 1.5, (0.0, 3.0), (-1.5, 1.5)),
    ([True, False], 1.5, (1.5, 3.0), (-1.5, 1.5)),
    ([False, True], 2.25, (1.5, 3.0), (-1.5, 2.25)),
    ([True, False], 2.4375, (1.875, 3.0), (-2.0625, 2.25)),
    ([False, False], 2.4375, (1.875, 3.0), (-2.0625, 2.25)),
    ([True, True], 2.7421875, (2.25, 3.046875), (-2.5546875, 2.5546875)),
]


def test_hand_worked_rounds(x64):
    who, z, theta, dual = (np.array(column) for column in zip(*HAND_WORKED, strict=True))
    run = solve(ADMM(inner="exact"), quadratics([1, 3], [0, 4]), rounds=6, participates=who)
    np.testing.assert_allclose(run.z, z, atol=1e-12)
    np.testing.assert_allclose(run.theta, theta, atol=1e-12)
    np.testing.assert_allclose(run.dual, dual, atol=1e-12)


def test_z_is_the_weighted_mean_of_all_stored_contributions_and_the_absent_keep_everything(
    x64, tree_round, params, targets
):
    rule = ADMM(inner="exact")
    weights = jnp.array([0.7, 1.0, 2.2])
    state = rule.init(params(jnp.float64), 3, penalty=0.6, weights=weights)
    for who in ([1, 1, 1], [1, 0, 1], [0, 1, 0], [0, 0, 1]):
        before = state
        state, _ = tree_round(rule, before, targets, jnp.array(who, bool))
        for name in targets:
            stored = np.asarray(state.workers.contribution[name])
            mean = np.tensordot(weights, stored, 1) / weights.sum()
            np.testing.assert_allclose(state.shared.z[name], mean, atol=1e-12)
            for worker, present in enumerate(who):
                if present:
                    sent = state.workers.theta[name] + before.workers.scaled_dual[name]
                    np.testing.assert_allclose(stored[worker], sent[worker], atol=1e-12)
                else:
                    for kept in ("theta", "scaled_dual", "contribution"):
                        old, new = (getattr(s.workers, kept)[name][worker] for s in (before, state))
                        np.testing.assert_array_equal(new, old)


def test_taking_turns_still_reaches_the_optimum(x64):
    who = np.resize(np.eye(3, dtype=bool), (240, 3))
    who[0] = True
    weights = np.array([1.0, 0.5, 2.0])
    problem = quadratics([1.0, 3.0, 0.5], [0.0, 4.0, -2.0])
    run = solve(ADMM(inner="exact"), problem, rounds=240, participates=who, weights=weights)
    assert run.z[-1] == pytest.approx(problem.centralised(weights), abs=1e-8)
    assert run.dual[-1] @ weights == pytest.approx(0, abs=1e-8)


def test_an_absent_worker_still_counts_in_fedavg(x64):
    problem = quadratics([1.0, 2.0], [2.0, 6.0])
    run = solve(FedAvg(), problem, rounds=2, participates=[[True, True], [True, False]], steps=1, lr=0.25)
    # theta = (0.5, 3), z = 1.75; then only worker 0 steps, from z.
    np.testing.assert_allclose(run.theta[1], [1.75 - 0.25 * (1.75 - 2), 3.0], atol=1e-12)
    assert run.z[1] == pytest.approx((1.8125 + 3) / 2, abs=1e-12)
