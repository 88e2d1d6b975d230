"""The convex script: what it prints, and what it refuses before anything runs."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.errors import InvalidInput

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "experiments" / "convex_consensus.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("convex_consensus", SCRIPT)
    module = sys.modules["convex_consensus"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["convex_consensus"]


@pytest.fixture
def result(script, capsys):
    def run(arguments: str) -> dict:
        script.main([*arguments.split(), "--json"])
        printed = capsys.readouterr()
        assert printed.err == ""
        (line,) = printed.out.splitlines()
        return {name: np.array(value) for name, value in json.loads(line).items()}

    return run


def shell(arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_first_example_and_its_defaults(result):
    told = result(
        "--problem quadratics --curvature 1,3 --centre 0,4 --rho 1 --rounds 50 --rule admm --inner exact "
        "--restart consensus --over-relaxation 1 --l1 0 --dual-leak 0"
    )
    default = result("")
    assert set(told) == {"z", "theta", "dual", "primal_residual", "dual_residual"}
    k = np.arange(1, 51)
    z = 3 * (1 - 2.0**-k)
    np.testing.assert_allclose(told["z"], z, atol=1e-10)
    np.testing.assert_allclose(told["dual"], np.stack([-z, z], 1), atol=1e-10)
    np.testing.assert_allclose(told["primal_residual"], 3 / np.sqrt(2) * 2.0 ** (1 - k), atol=1e-10)
    np.testing.assert_allclose(told["dual_residual"], told["primal_residual"], atol=1e-10)
    # Worker i starts round k at z_(k-1) = -lambda_0 = lambda_1.
    np.testing.assert_allclose(told["theta"], np.stack([np.r_[0, z[:-1]], np.full(50, 3.0)], 1), atol=1e-10)
    for name, values in told.items():
        np.testing.assert_array_equal(default[name], values)


@pytest.mark.parametrize(
    ("arguments", "z"),
    [
        ("--rule fedavg --inner-steps 10 --inner-lr 0.1 --rounds 100", 2.394845),
        ("--rule fedavg --inner gradient --rounds 100", 2.394845),
        ("--rule fedprox --rounds 60", 2.4),
        ("--rule diloco --rounds 300", 2.394845),
        ("--rule diloco --outer-lr 1 --outer-momentum 0 --rounds 100", 2.394845),
        ("--rule easgd --inner-steps 400 --rounds 400", 2),
        ("--order dual_first --rounds 80", 3),
        ("--dual-leak 0.01 --rounds 60", 2.985366),
        ("--dual-leak 0.1 --rounds 60", 2.88),
        ("--dual-leak 0.5 --rounds 60", 2.666667),
        ("--inner proximal --inner-steps 5 --inner-lr 0.1 --rounds 400", 3),
        ("--inner proximal --inner-steps 5 --inner-lr 0.1 --rounds 400 --restart worker", 3),
        ("--inner hybrid --inner-steps 5 --rounds 400", 3),
        ("--inner gradient --rounds 400 --rho 0.5", 3),
        ("--over-relaxation 1.5 --rounds 80", 3),
        ("--rho-at 2:2.0 --rounds 2", 2.1),
        ("--rho 9 --rho-at 2:2.0,1:1 --rounds 2", 2.1),
        ("--rho-at 2:2.0,5:3 --rounds 90", 3),
        ("--weights 0.2,0.8 --rounds 80", 0.8 * 12 / (0.2 + 2.4)),
        ("--curvature -1,3 --centre 1,2 --rho 4 --rounds 300", 2.5),
        ("--curvature=-1,3 --centre=1,2 --rho 4 --rounds 300", 2.5),
        ("--curvature 1,2,3 --centre -1,0,5 --rounds 80", 14 / 6),
        ("--l1 0.8 --rounds 80", (12 - 0.8) / 4),
        ("--participate 0,1/0/1 --rounds 150", 3),
        ("--participate random:1 --seed 3 --rounds 200", 3),
    ],
)
def test_where_rules_arrive(result, arguments, z):
    assert result(arguments)["z"][-1] == pytest.approx(z, abs=1e-6)


@pytest.mark.slow
def test_the_documented_commands_print_the_documented_numbers(script, capsys):
    page = (ROOT / "docs" / "consensus.md").read_text()
    rows = re.findall(r"^\| `(--[^`]*)` \| ([\d.]+) \|", page, flags=re.MULTILINE)
    assert len(rows) > 10
    for flags, z in rows:
        script.main(flags.split())
        assert (flags, capsys.readouterr().out.splitlines()[-1].split()[1]) == (flags, z)


def test_duals_of_rules_without_one_are_zero(result):
    assert not result("--rule fedprox --inner proximal --rounds 4")["dual"].any()
    assert not result("--rule fedavg --rounds 4")["dual"].any()


def test_hand_worked_participation(result):
    run = result("--participate 0,1/0/1 --rounds 4")
    # Round 4 repeats the first group: both take part.
    np.testing.assert_allclose(run["z"][:3], [1.5, 1.5, 2.25], atol=1e-12)
    np.testing.assert_allclose(run["theta"][:3], [[0, 3], [1.5, 3], [1.5, 3]], atol=1e-12)
    np.testing.assert_allclose(run["dual"][:3], [[-1.5, 1.5], [-1.5, 1.5], [-1.5, 2.25]], atol=1e-12)
    assert run["theta"][3, 0] == pytest.approx(1.875, abs=1e-12)
    assert run["theta"][3, 1] == pytest.approx(3.0, abs=1e-12)


def test_random_participation_follows_the_seed(script):
    def drawn(seed):
        arguments = f"--curvature 1,2,3,4 --centre 0,1,2,3 --participate random:2 --seed {seed}".split()
        return script.parse(script.ConvexConsensus, arguments).plan.participates

    first = drawn(5)
    assert first.shape == (50, 4)
    assert (first.sum(axis=1) == 2).all()
    assert first.any(axis=0).all()
    np.testing.assert_array_equal(first, drawn(5))
    assert not np.array_equal(first, drawn(6))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["", "--workers 3 --dim 7 --seed 5", "--workers 3 --dim 7 --weights 1,0.5,2"])
@pytest.mark.parametrize("problem", ["lasso", "ridge", "logistic"])
def test_data_problems_reach_the_centralised_solution(result, problem, arguments):
    run = result(f"--problem {problem} {arguments}")
    workers, dim = (3, 7) if arguments else (4, 20)
    assert run["z"].shape == (50, dim)
    assert run["theta"].shape == run["dual"].shape == (50, workers, dim)
    assert run["distance_to_centralised"] <= 1e-6


def test_one_unknown_is_printed_as_a_scalar(result):
    run = result("--problem ridge --workers 2 --dim 1 --rounds 3")
    assert run["z"].shape == (3,)
    assert run["theta"].shape == run["dual"].shape == (3, 2)


def test_table_for_people(script, capsys):
    script.main(["--rounds", "3"])
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["round", "z"]
    assert [row.split()[:2] for row in rows] == [["1", "1.500000"], ["2", "2.250000"], ["3", "2.625000"]]
    script.main(["--problem", "lasso", "--workers", "2", "--dim", "3", "--rounds", "2"])
    assert "relative distance to the centralised solution" in capsys.readouterr().out


def test_numbers_that_are_not_finite_are_null(script):
    assert script._numbers_of(np.array([1.0, np.nan, np.inf])) == [1.0, None, None]


def test_the_precision_of_others_stays(script, capsys):
    script.main(["--rounds", "1"])
    assert jnp.zeros(1).dtype == jnp.float32


REFUSED = [
    ("--rule fedavg --inner exact", "inner", "gradient"),
    ("--rule fedavg --inner proximal", "inner", "gradient"),
    ("--rule fedprox --inner hybrid", "inner", "exact, gradient, proximal"),
    ("--curvature -1,3 --rho 1", "rho", "above 1"),
    ("--curvature 3,-2.5 --rho 2", "rho", "worker 1"),
    ("--rule fedprox --curvature -1,3 --rho 0.5", "rho", "above 1"),
    ("--curvature -1,3 --rho 2 --rho-at 3:0.9", "rho_at", "above 1"),
    ("--rho 0", "rho", "finite"),
    ("--rho -1", "rho", "finite"),
    ("--rho nan", "rho", "finite"),
    ("--rho inf", "rho", "finite"),
    ("--rule fedavg --rho 1", "rho", "fedavg"),
    ("--rule fedavg --rho-at 2:2", "rho_at", "fedavg"),
    ("--rule fedavg --dual-leak 0", "dual_leak", "fedavg"),
    ("--rule fedprox --dual-leak 0.1", "dual_leak", "fedprox"),
    ("--rule fedavg --over-relaxation 1", "over_relaxation", "fedavg"),
    ("--rule fedprox --over-relaxation 1.5", "over_relaxation", "fedprox"),
    ("--rule fedavg --restart worker", "restart", "fedavg"),
    ("--rule fedprox --restart consensus", "restart", "fedprox"),
    ("--inner-steps 10", "inner_steps", "exact"),
    ("--inner exact --inner-lr 0.1", "inner_lr", "exact"),
    ("--inner proximal --inner-lr 0", "inner_lr", "finite"),
    ("--inner proximal --inner-lr nan", "inner_lr", "finite"),
    ("--inner proximal --inner-steps 0", "inner_steps", "at least 1"),
    ("--over-relaxation 2", "over_relaxation", "below 2"),
    ("--dual-leak 1.5", "dual_leak", "between 0 and 1"),
    ("--l1 -1", "l1", ">= 0"),
    ("--rule easgd --l1 0.3", "rule", "admm, fedavg or fedprox"),
    ("--rule diloco --problem lasso", "rule", "admm, fedavg or fedprox"),
    ("--rule diloco --inner exact", "inner", "diloco"),
    ("--rule easgd --rho 2", "rho", "no penalty"),
    ("--rule easgd --elasticity 0", "elasticity", "> 0"),
    ("--rule diloco --outer-momentum 1", "outer_momentum", "< 1"),
    ("--outer-lr 0.5", "outer_lr", "admm"),
    ("--rule fedprox --order dual_first", "order", "no dual"),
    ("--l1 nan", "l1", ">= 0"),
    ("--problem lasso --l1 inf", "l1", ">= 0"),
    ("--rounds 0", "rounds", "at least 1"),
    ("--problem lasso --curvature 1,3", "curvature", "lasso"),
    ("--problem ridge --centre 1,3", "centre", "ridge"),
    ("--dim 20", "dim", "quadratics"),
    ("--workers 2", "workers", "quadratics"),
    ("--seed 1", "seed", "random:k"),
    ("--problem logistic --workers 0", "workers", "at least 1"),
    ("--problem lasso --dim 0", "dim", "at least 1"),
    ("--problem lasso --seed -1", "seed", "at least 0"),
    ("--curvature 1,3,5 --centre 0,4", "centre", "3 finite numbers"),
    ("--curvature 1,,3", "curvature", "separated by commas"),
    ("--curvature one,two", "curvature", "separated by commas"),
    ("--curvature 1,nan", "curvature", "separated by commas"),
    ("--centre 0;4", "centre", "separated by commas"),
    ("--weights 1", "weights", "2 numbers"),
    ("--weights 1,0", "weights", "above 0"),
    ("--weights 1,-2", "weights", "above 0"),
    ("--weights 1,x", "weights", "separated by commas"),
    ("--rho-at 2", "rho_at", "2:2.0,5:3"),
    ("--rho-at 0:2", "rho_at", "from 1 to 50"),
    ("--rho-at 51:2", "rho_at", "from 1 to 50"),
    ("--rho-at 2:0", "rho_at", "above 0"),
    ("--rho-at 2:nan", "rho_at", "above 0"),
    ("--rho-at 2:1,2:3", "rho_at", "different rounds"),
    ("--rho-at 2:1:3", "rho_at", "2:2.0,5:3"),
    ("--participate 0,2", "participate", "from 0 to 1"),
    ("--participate 0,-1", "participate", "from 0 to 1"),
    ("--participate 0//1", "participate", "from 0 to 1"),
    ("--participate all", "participate", "from 0 to 1"),
    ("--participate random:0", "participate", "from 1 to 2"),
    ("--participate random:3", "participate", "from 1 to 2"),
    ("--participate random", "participate", "from 1 to 2"),
    ("--participate randomly:1", "participate", "from 1 to 2"),
]


@pytest.mark.parametrize(("arguments", "field", "allowed"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refused_with_field_value_and_allowed_range(script, capsys, monkeypatch, arguments, field, allowed):
    monkeypatch.setattr(script, "solve", lambda *_, **__: pytest.fail("ran"))
    with pytest.raises(InvalidInput) as refused:
        script.main(arguments.split())
    assert refused.value.field == field
    assert allowed in refused.value.allowed
    assert f"{refused.value.value!r}" in str(refused.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [("--curvatur 1,3", "--curvature"), ("--rule sgd", "fedavg"), ("--rho one", "--rho")],
)
def test_unknown_flags_and_words_exit_with_2(script, capsys, arguments, said):
    with pytest.raises(SystemExit) as stopped:
        script.main(arguments.split())
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


@pytest.mark.slow
def test_help_names_every_default(capsys):
    done = shell("--help")
    assert done.returncode == 0
    assert "0.5 for lasso" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_a_refusal_in_a_shell():
    done = shell("--rule fedavg --inner exact --json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("inner = 'exact' is not allowed: inner must be gradient")


@pytest.mark.slow
def test_json_is_alone_on_stdout_of_a_shell():
    done = shell("--curvature -1,3 --centre 1,2 --rho 4 --rounds 3 --json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["z"]) == 3
