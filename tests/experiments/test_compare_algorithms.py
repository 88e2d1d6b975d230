"""The comparison script: what it refuses, and that it repeats nothing."""

import pytest

from admm_jax.comparison import runner
from admm_jax.errors import InvalidInput
from experiments import compare_algorithms


@pytest.mark.parametrize(
    ("settings", "field", "words"),
    [
        ({"suite": "cartpol"}, "suite", "did you mean cartpole"),
        ({"rules": ("admn",)}, "rules", "did you mean admm"),
        ({"losses": ("ppo,a3c",)}, "losses", "one of"),
        ({"seeds": 0}, "seeds", "at least 1"),
        ({"first_seed": -1}, "first_seed", "at least 0"),
        ({"spread": -0.5}, "spread", ">= 0"),
        ({"suite": "jax-pong", "losses": ("vtrace",)}, "losses", "rules"),
        ({"suite": "heterogeneous", "variants": ("96 local step",)}, "variants", "did you mean 96 local steps"),
    ],
)
def test_bad_input_is_refused(tmp_path, settings, field, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        compare_algorithms.compare(compare_algorithms.Flags(out=tmp_path / "out", **settings))
    assert caught.value.field == field
    assert not (tmp_path / "out").exists()


def test_finished_runs_are_not_repeated(tmp_path, monkeypatch, capsys):
    asked = []

    def pretend(name, suite, cell, config, seeds, folder, say):
        asked.append((cell.rule, list(seeds)))
        return [{"key": runner.key(config, suite.plan, seed), "suite": name} for seed in seeds]

    monkeypatch.setattr(compare_algorithms, "run_cell", pretend)
    monkeypatch.setattr(compare_algorithms, "write_report", lambda results: results.folder / "report.md")
    flags = {"rules": ("admm,fedavg",), "out": tmp_path / "out"}
    compare_algorithms.compare(compare_algorithms.Flags(seeds=2, **flags))
    assert asked == [("admm", [0, 1]), ("fedavg", [0, 1])]
    asked.clear()
    compare_algorithms.compare(compare_algorithms.Flags(seeds=4, seeds_per_call=1, **flags))
    assert asked == [("admm", [2]), ("admm", [3]), ("fedavg", [2]), ("fedavg", [3])]
    asked.clear()
    compare_algorithms.compare(compare_algorithms.Flags(seeds=2, first_seed=1, **flags))
    assert asked == []
    assert "2 of 2 seeds are there" in capsys.readouterr().out


def test_variants_can_be_chosen(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(compare_algorithms, "run_cell", lambda name, suite, cell, *rest: asked.append(cell) or [])
    monkeypatch.setattr(compare_algorithms, "write_report", lambda results: results.folder)
    compare_algorithms.compare(
        compare_algorithms.Flags(
            "heterogeneous", rules=("admm,fedprox",), variants=("96 local steps",), out=tmp_path / "out"
        )
    )
    assert [(cell.rule, cell.variant) for cell in asked] == [("admm", "96 local steps"), ("fedprox", "96 local steps")]


def test_reporting_needs_results(tmp_path):
    with pytest.raises(InvalidInput, match="to report on"):
        compare_algorithms.compare(compare_algorithms.Flags(report_only=True, out=tmp_path / "none"))
