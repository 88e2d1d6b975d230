"""A search is run, stopped by its budget, and gone on with; it never repeats a finished trial."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.tune import Flags, flag, settings

TUNE = Path(__file__).parents[2] / "experiments" / "tune.py"


def tune(*arguments, cache):
    return subprocess.run(
        [sys.executable, TUNE, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TUNE.parents[1]), "XDG_CACHE_HOME": str(cache)},
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_search_goes_on_where_it_stopped(tmp_path):
    search = ["--env", "gymnax:CartPole-v1", "--steps", 400, "--eval-every", 200, "--out", tmp_path]
    vary = ["--vary", "normalize-observations=true"]
    first = tune(*search, *vary, "--budget-minutes", 0.001, cache=tmp_path / "cache")
    assert first.returncode == 0, first.stderr
    assert "stopped" in first.stdout
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row["setting"] for row in rows] == [{}]
    finished = (tmp_path / "trials" / "default-s0" / "summary.json").stat().st_mtime_ns

    again = tune(*search, *vary, "--budget-minutes", 30, cache=tmp_path / "cache")
    assert again.returncode == 0, again.stderr
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    expected = [{}, {"normalize_observations": "true"}]
    assert [row["setting"] for row in rows] == expected
    assert (tmp_path / "trials" / "default-s0" / "summary.json").stat().st_mtime_ns == finished
    folder = tmp_path / "trials" / "normalize_observations=true-s0"
    assert json.loads((folder / "config.json").read_text())["train"]["normalize_observations"] is True
    table = (tmp_path / "table.md").read_text().splitlines()
    means = [float(line.split("|")[3]) for line in table if line.startswith("| ") and "setting" not in line]
    assert len(means) == 2
    assert means == sorted(means, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--vary", "kapa=1"], ["kapa", "kappa"]),
        (["--vary", "lr=1e-3,"], ["lr", "empty"]),
        (["--vary", "minibatches=7"], ["minibatches", "7"]),
        (["--vary", "lr=1e-3", "--budget-minutes", "0"], ["budget_minutes", "0"]),
    ],
)
def test_bad_input_is_refused_before_anything_runs(tmp_path, arguments, words):
    done = tune("--env", "gymnax:CartPole-v1", "--out", tmp_path / "search", *arguments, cache=tmp_path)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words)
    assert not (tmp_path / "search").exists()


def test_the_settings_of_each_kind_of_search():
    flags = {"vary": ("lr=1e-3,2e-3", "kappa=0.1,1,3"), "env": "gymnax:CartPole-v1"}
    alone = list(settings(Flags(**flags)))
    assert alone == [(), *[(("lr", x),) for x in ("1e-3", "2e-3")], *[(("kappa", x),) for x in ("0.1", "1", "3")]]
    grid = list(settings(Flags(**flags, search="grid")))
    assert grid[0] == ()
    assert len(set(grid)) == 7
    assert (("lr", "2e-3"), ("kappa", "0.1")) in grid
    drawn = list(settings(Flags(**flags, search="random", trials=4)))
    assert len(set(drawn)) == 5
    assert set(drawn) <= set(grid)


@pytest.mark.parametrize(
    ("name", "value", "arguments"),
    [
        ("clip_rewards", "true", ["--clip-rewards"]),
        ("normalize_observations", "False", ["--no-normalize-observations"]),
        ("clip_value", "true", ["--clip-value", "True"]),
        ("hidden", "64 32", ["--hidden", "64", "32"]),
    ],
)
def test_settings_become_flags_that_parse(name, value, arguments):
    assert flag(name, value) == arguments
    Flags(vary=(f"{name}={value}",))
