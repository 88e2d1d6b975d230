"""A search is run, stopped by its budget, and gone on with; it never repeats a finished trial."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    vary = ["--vary", "lr=3e-3,2e-2", "normalize-observations=true"]
    first = tune(*search, *vary, "--budget-minutes", 0.001, cache=tmp_path / "cache")
    assert first.returncode == 0, first.stderr
    assert "stopped" in first.stdout
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row["setting"] for row in rows] == [{}]
    finished = (tmp_path / "trials" / "default-s0" / "summary.json").stat().st_mtime_ns

    again = tune(*search, *vary, "--budget-minutes", 30, cache=tmp_path / "cache")
    assert again.returncode == 0, again.stderr
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    expected = [{}, {"lr": "3e-3"}, {"lr": "2e-2"}, {"normalize_observations": "true"}]
    assert [row["setting"] for row in rows] == expected
    assert (tmp_path / "trials" / "default-s0" / "summary.json").stat().st_mtime_ns == finished
    for setting, field, value in ((1, "lr", 3e-3), (3, "normalize_observations", True)):
        name = "-".join(f"{key}={text}" for key, text in expected[setting].items())
        config = json.loads((tmp_path / "trials" / f"{name}-s0" / "config.json").read_text())
        assert config["train"][field] == value
    table = (tmp_path / "table.md").read_text().splitlines()
    means = [float(line.split("|")[3]) for line in table if line.startswith("| ") and "setting" not in line]
    assert len(means) == 4
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
