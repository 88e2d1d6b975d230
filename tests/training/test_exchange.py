"""Penalties in the metric of Adam: what is kept when v, lr or kappa changes."""

import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ADMM, FedAvg, LocalReduction
from admm_jax.training.exchange import Exchange
from admm_jax.training.model import Model
from admm_jax.training.rules import Penalty
from admm_jax.training.state import Adam

D, W, K, EPS = 3, 2, 4, 1e-3


def exchange(kappa=0.6, rho=None, every=1, rule=None):
    return Exchange(rule or ADMM(), Penalty(kappa, rho, every), K, EPS, Model.ravel)


def start(meet, lr=0.1):
    params = jnp.arange(1.0, D + 1)
    state = meet.rule.init(params, W, penalty=meet.initial_penalty(params, jnp.float32(lr)))
    return state, {"a": jnp.zeros((W, 1)), "b": jnp.zeros((W, 2))}


def adam(nu_rows, count=K):
    rows = jnp.asarray(nu_rows, jnp.float32)
    tree = {"a": rows[:, :1], "b": rows[:, 1:]}
    return Adam(jnp.full(W, count, jnp.int32), {name: jnp.ones_like(leaf) for name, leaf in tree.items()}, tree)


def meet_once(meet, state, theta, moments, before, lr=0.1, next_lr=0.1):
    return meet(
        jnp.asarray(theta, jnp.float32), moments, before, state,
        lr=jnp.float32(lr), next_lr=jnp.float32(next_lr), reduction=LocalReduction(),
    )  # fmt: skip


def metric(nu, count):
    return np.sqrt(np.asarray(nu) / (1 - 0.999**count)) + EPS


def test_strength_shrinks_the_distance_by_exp_kappa_over_a_round():
    assert (1 + float(exchange().strength)) ** -K == pytest.approx(np.exp(-0.6))


def test_first_round_adopts_the_shared_metric():
    meet = exchange()
    state, before = start(meet)
    theta = [[2.0, 2, 2], [0, 4, 2]]
    state, moments, _ = meet_once(meet, state, theta, adam([[1.0, 4, 9], [3, 4, 1]]), before)
    shared_nu = [2.0, 4, 5]
    for row in range(W):
        np.testing.assert_allclose(np.concatenate([moments.nu["a"][row], moments.nu["b"][row]]), shared_nu)
    expected = np.expm1(0.6 / K) * metric(shared_nu, K) / 0.1
    np.testing.assert_allclose(state.shared.penalty, expected, rtol=1e-5)
    np.testing.assert_allclose(state.workers.scaled_dual, [[1, -1, 0], [-1, 1, 0]], atol=1e-6)


def test_lambda_stays_when_the_second_moment_and_the_learning_rate_change():
    meet = exchange()
    state, before = start(meet)
    state, moments, _ = meet_once(meet, state, [[2.0, 2, 2], [0, 4, 2]], adam([[1.0, 4, 9], [3, 4, 1]]), before)
    multiplier = np.asarray(state.shared.penalty * state.workers.scaled_dual)
    z = np.asarray(state.shared.z)
    # Everyone comes back with theta = z, so the exchange itself leaves the duals alone.
    later = adam([[0.5, 2, 30], [0.1, 8, 30]], count=2 * K)
    state, moments, _ = meet_once(meet, state, [z, z], later, moments.nu, lr=0.1, next_lr=0.025)
    np.testing.assert_allclose(state.shared.penalty * state.workers.scaled_dual, multiplier, rtol=1e-5, atol=1e-7)
    expected = np.expm1(0.6 / K) * metric([0.3, 5, 30], 2 * K) / 0.025
    np.testing.assert_allclose(state.shared.penalty, expected, rtol=1e-5)


def test_a_learning_rate_of_zero_leaves_everything_finite():
    meet = exchange()
    state, before = start(meet)
    state, _, residuals = meet_once(
        meet, state, [[2.0, 2, 2], [0, 4, 2]], adam([[1.0, 4, 9], [3, 4, 1]]), before, next_lr=0.0
    )
    assert np.isfinite(state.workers.scaled_dual).all()
    assert np.isfinite(residuals.dual)
    np.testing.assert_allclose(state.workers.scaled_dual, 0, atol=1e-6)


def test_without_sharing_the_penalty_is_a_scalar_that_follows_the_learning_rate():
    meet = exchange(every=0)
    state, before = start(meet)
    moments_in = adam([[1.0, 4, 9], [3, 4, 1]])
    state, moments, _ = meet_once(meet, state, [[2.0, 2, 2], [0, 4, 2]], moments_in, before, next_lr=0.05)
    assert state.shared.penalty.shape == ()
    np.testing.assert_allclose(state.shared.penalty, np.expm1(0.6 / K) / 0.05, rtol=1e-5)
    np.testing.assert_allclose(state.workers.scaled_dual, [[0.5, -0.5, 0], [-0.5, 0.5, 0]], atol=1e-6)
    np.testing.assert_array_equal(moments.nu["b"], moments_in.nu["b"])


def test_sharing_every_second_round():
    meet = exchange(every=2)
    state, before = start(meet)
    first = adam([[1.0, 4, 9], [3, 4, 1]])
    state, moments, _ = meet_once(meet, state, [[2.0, 2, 2], [0, 4, 2]], first, before)
    np.testing.assert_array_equal(moments.nu["b"], first.nu["b"])
    np.testing.assert_allclose(state.shared.penalty, np.full(D, np.expm1(0.6 / K) / 0.1), rtol=1e-5)
    state, moments, _ = meet_once(meet, state, [[2.0, 2, 2], [0, 4, 2]], adam([[1.0, 4, 9], [3, 4, 1]], 2 * K), before)
    np.testing.assert_allclose(moments.nu["b"], [[4, 5], [4, 5]])
    np.testing.assert_allclose(state.shared.penalty, np.expm1(0.6 / K) * metric([2, 4, 5], 2 * K) / 0.1, rtol=1e-5)


@pytest.mark.parametrize(
    ("meet", "expected"),
    [
        (exchange(kappa=None, rho=0.7, rule=ADMM(inner="gradient")), 0.7),
        (exchange(kappa=0.2, rho=0.4, rule=ADMM(inner="hybrid")), 0.4),
        (exchange(kappa=None, rule=FedAvg()), 1.0),
    ],
)
def test_a_penalty_of_its_own_does_not_follow_the_metric(meet, expected):
    state, before = start(meet)
    state, _, _ = meet_once(meet, state, [[2.0, 2, 2], [0, 4, 2]], adam([[1.0, 4, 9], [3, 4, 1]]), before, next_lr=0.01)
    np.testing.assert_allclose(state.shared.penalty, expected)


def test_a_worker_that_failed_is_left_out_of_the_second_moment():
    meet = exchange()
    state, before = start(meet)
    broken = adam([[1.0, 4, 9], [np.nan, 4, 1]])
    state, moments, residuals = meet_once(meet, state, [[2.0, 2, 2], [0, 4, 2]], broken, before)
    assert float(residuals.failed) == 1
    np.testing.assert_allclose(moments.nu["a"], [[1], [1]])
    np.testing.assert_allclose(moments.mu["a"], [[1], [0]])
    # z = mean of worker 0's message and worker 1's stored contribution, which is where it started.
    np.testing.assert_allclose(state.shared.z, [1.5, 2, 2.5])
