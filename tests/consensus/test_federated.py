"""FedAvg and FedProx: where they stop, and that one worker is plain gradient descent."""

from __future__ import annotations

import numpy as np
import pytest

from admm_jax.consensus import ADMM, FedAvg, FedProx, GradientAveraging, Regularizer
from admm_jax.consensus.problems import quadratics
from admm_jax.consensus.solve import solve
from admm_jax.errors import InvalidInput


def test_fedavg_stops_short_of_the_optimum(x64):
    run = solve(FedAvg(), quadratics([1, 3], [0, 4]), rounds=100, steps=10, lr=0.1)
    forgotten = 1 - np.array([0.9, 0.7]) ** 10
    assert run.z[-1] == pytest.approx(4 * forgotten[1] / forgotten.sum(), abs=1e-10)
    assert run.z[-1] == pytest.approx(2.394845, abs=1e-6)
    assert not run.dual.any()


def test_fedprox_stops_short_and_admm_does_not(x64):
    problem = quadratics([1, 3], [0, 4])
    fedprox = solve(FedProx(inner="exact"), problem, rounds=80)
    assert fedprox.z[-1] == pytest.approx(2.4, abs=1e-10)
    assert not fedprox.dual.any()
    admm = solve(ADMM(inner="exact"), problem, rounds=80)
    assert admm.z[-1] == pytest.approx(3, abs=1e-10)


@pytest.mark.parametrize("inner", ["gradient", "proximal"])
def test_inexact_fedprox_approaches_the_exact_one_with_many_steps(x64, inner):
    run = solve(FedProx(inner=inner), quadratics([1, 3], [0, 4]), rounds=40, steps=200, lr=0.1)
    assert run.z[-1] == pytest.approx(2.4, abs=1e-9)


def test_fedprox_is_admm_whose_dual_is_held_at_zero(x64):
    problem = quadratics([0.5, 2.0, 1.2], [1.0, -3.0, 4.0])
    fedprox = solve(FedProx(inner="proximal"), problem, rounds=1, penalty=0.6, steps=3, lr=0.2)
    admm = solve(ADMM(inner="proximal"), problem, rounds=1, penalty=0.6, steps=3, lr=0.2)
    np.testing.assert_allclose(fedprox.z, admm.z, atol=1e-12)


@pytest.mark.parametrize("rule", [FedAvg(), GradientAveraging()], ids=["fedavg", "gradient"])
def test_one_worker_is_plain_gradient_descent(x64, rule):
    run = solve(rule, quadratics([1.7], [-2.0]), rounds=6, steps=4, lr=0.15)
    steps = 4 * np.arange(1, 7)
    np.testing.assert_allclose(run.z, -2 * (1 - (1 - 0.15 * 1.7) ** steps), atol=1e-12)
    np.testing.assert_allclose(run.theta[:, 0], run.z, atol=1e-12)
    np.testing.assert_allclose(run.residuals.primal, 0, atol=1e-12)


def test_one_local_step_of_fedavg_is_gradient_averaging(x64):
    problem, weights = quadratics([1.0, 2.5, 0.4], [3.0, -1.0, 2.0]), [1.0, 0.3, 2.0]
    fedavg = solve(FedAvg(), problem, rounds=12, steps=1, lr=0.2, weights=weights)
    averaging = solve(GradientAveraging(), problem, rounds=4, steps=3, lr=0.2, weights=weights)
    np.testing.assert_allclose(fedavg.z[2::3], averaging.z, atol=1e-12)


def test_fedavg_with_a_regulariser_is_proximal_gradient_descent(x64):
    """One step of lr, a penalty of 1 / lr: z moves by lr along the mean gradient, then the prox of g / W."""
    problem = quadratics([1.0, 2.0], [3.0, 1.5], l1=0.8)
    run = solve(FedAvg(Regularizer(l1=0.8)), problem, rounds=200, penalty=1 / 0.3, steps=1, lr=0.3)
    assert run.z[-1] == pytest.approx((3 + 3 - 0.8) / 3, abs=1e-10)
    z = 0.0
    for value in run.z[:5]:
        step = z - 0.3 * (1 * (z - 3) + 2 * (z - 1.5)) / 2
        z = np.sign(step) * max(abs(step) - 0.3 * 0.8 / 2, 0)
        assert value == pytest.approx(z, abs=1e-12)


def test_fedprox_refuses_what_has_no_dual_to_show():
    with pytest.raises(InvalidInput, match=r"hybrid.*exact, gradient, proximal"):
        FedProx(inner="hybrid")
