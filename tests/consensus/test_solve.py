"""Runs of a rule on a convex problem, and the example of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from admm_jax.consensus import ADMM, FedAvg
from admm_jax.consensus.problems import lasso, logistic, quadratics, relative_distance
from admm_jax.consensus.solve import solve
from admm_jax.errors import InvalidInput

ROOT = Path(__file__).parents[2]


def test_trajectories_have_one_entry_per_round(x64):
    run = solve(FedAvg(), lasso(workers=3, dim=4), rounds=5, steps=2)
    assert (run.z.shape, run.theta.shape, run.dual.shape) == ((5, 4), (5, 3, 4), (5, 3, 4))
    assert all(residual.shape == (5,) for residual in run.residuals)
    assert run.z.dtype == run.theta.dtype == run.dual.dtype == np.float64
    scalar = solve(FedAvg(), quadratics([1.0, 2.0], [3.0, 4.0]), rounds=5, steps=2)
    assert (scalar.z.shape, scalar.theta.shape) == ((5,), (5, 2))


def test_single_precision_by_default():
    run = solve(ADMM(inner="exact"), quadratics([1, 3], [0, 4]), rounds=30)
    assert run.z.dtype == np.float32
    assert run.z[-1] == pytest.approx(3, abs=1e-5)


def test_dual_is_lambda_in_loss_units(x64):
    problem = quadratics([1.0, 2.0], [3.0, -1.0])
    run = solve(ADMM(inner="exact"), problem, rounds=4, penalty=[0.5, 0.5, 4.0, 4.0])
    # An exact solve is stationary: grad f_i + lambda_i + rho (theta_i - z) = 0 lambda and z of before.
    z, dual = np.concatenate([[0], run.z[:-1]]), np.concatenate([np.zeros((1, 2)), run.dual[:-1]])
    rho = np.array([0.5, 0.5, 4.0, 4.0])[:, None]
    slope = np.array([1.0, 2.0]) * (run.theta - [3.0, -1.0])
    np.testing.assert_allclose(slope + dual + rho * (run.theta - z[:, None]), 0, atol=1e-12)
    np.testing.assert_allclose(run.dual, dual + rho * (run.theta - run.z[:, None]), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("inner", ["exact", "proximal"])
def test_logistic_regression_by_consensus(x64, inner):
    problem, weights = logistic(workers=3, dim=6, seed=2), [1.0, 0.5, 1.5]
    run = solve(ADMM(inner=inner), problem, rounds=150, weights=weights, penalty=0.8, steps=5, lr=0.3)
    assert relative_distance(run.z[-1], problem.centralised(weights)) < 1e-9


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("rounds", {"rounds": 0}),
        ("steps", {"steps": 0}),
        ("lr", {"lr": -0.1}),
        ("lr", {"lr": float("nan")}),
        ("penalty", {"penalty": 0.0}),
        ("penalty", {"penalty": [1.0, 2.0]}),
        ("penalty", {"penalty": [1.0, 2.0, float("inf")]}),
        ("participates", {"participates": [[True, True]]}),
    ],
)
def test_what_solve_refuses(field, given):
    with pytest.raises(InvalidInput) as refused:
        solve(ADMM(), quadratics([1.0, 2.0], [0.0, 1.0]), **{"rounds": 3, **given})
    assert refused.value.field == field


@pytest.mark.slow
def test_the_documented_example_prints_what_it_says(capsys):
    page = (ROOT / "docs" / "consensus.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(example, "docs/consensus.md", "exec"), {})
    printed = capsys.readouterr().out.strip()
    assert f"```text\n{printed}\n```" in page
    assert example in (ROOT / "README.md").read_text()
