"""One process, one run, and rows that are never lost."""

import json
import math

import pytest

from admm_jax.errors import InvalidInput
from admm_jax.training.run_folder import RunFolder, jsonable, read_config, read_rows


def test_a_folder_holds_one_run(tmp_path):
    with RunFolder.create(tmp_path / "run", {"a": 1}):
        pass
    with pytest.raises(InvalidInput, match="does not hold a run yet"):
        RunFolder.create(tmp_path / "run", {"a": 2})
    assert read_config(tmp_path / "run") == {"a": 1}


def test_a_folder_serves_one_process_at_a_time(tmp_path):
    with RunFolder.create(tmp_path / "run", {}), pytest.raises(InvalidInput, match="no other process"):
        RunFolder.reopen(tmp_path / "run")
    RunFolder.reopen(tmp_path / "run").close()


@pytest.mark.parametrize("content", [None, "{broken"])
def test_no_run_to_reopen(tmp_path, content):
    if content:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidInput, match="resume"):
        RunFolder.reopen(tmp_path)


def test_rows_of_rounds_that_were_not_saved_are_put_aside(tmp_path):
    with RunFolder.create(tmp_path / "run", {}) as folder:
        for index in (1, 2, 3):
            folder.metrics({"round": index, "env_steps": 10 * index, "x": math.nan})
        with (folder.path / "metrics.jsonl").open("a") as file:
            file.write('{"round": 4, "env_')
        folder.go_back_to(2)
        assert [row["round"] for row in read_rows(folder.path / "metrics.jsonl")] == [1, 2]
        assert len((folder.path / "superseded.jsonl").read_text().splitlines()) == 2
        folder.go_back_to(2)
        assert len((folder.path / "superseded.jsonl").read_text().splitlines()) == 2


def test_json_has_no_nan(tmp_path):
    row = jsonable({"a": float("nan"), "b": [float("inf"), 1.23456789012], "c": True, "d": tmp_path})
    assert row == {"a": None, "b": [None, 1.234568], "c": True, "d": str(tmp_path)}
    json.dumps(row, allow_nan=False)


def test_there_is_tensorboard(tmp_path):
    with RunFolder.create(tmp_path / "run", {}) as folder:
        folder.metrics({"round": 1, "env_steps": 10, "entropy": 0.5})
    assert any((tmp_path / "run" / "tensorboard").iterdir())
