"""Rows are kept, found again, and never mixed with another layout."""

import json

import pytest

from admm_jax.comparison import Results
from admm_jax.comparison.results import ROWS, SCHEMA, SCHEMA_VERSION, key_of
from admm_jax.errors import InvalidInput


def test_rows_are_found_again(tmp_path):
    folder = tmp_path / "out"
    results = Results(folder)
    assert not folder.exists()
    results.add([{"key": "a", "score": 1.5}, {"key": "b", "score": float("nan")}])
    again = Results(folder)
    assert again.has("a")
    assert not again.has("c")
    assert again.rows == results.rows == [{"key": "a", "score": 1.5}, {"key": "b", "score": None}]
    again.add([{"key": "c"}])
    assert len(Results(folder).rows) == 3


@pytest.mark.parametrize("content", [json.dumps({"version": SCHEMA_VERSION + 1}), "{", "[]", None])
def test_another_layout_is_refused(tmp_path, content):
    (tmp_path / ROWS).write_text('{"key": "a"}\n')
    if content is not None:
        (tmp_path / SCHEMA).write_text(content)
    with pytest.raises(InvalidInput, match="give another folder"):
        Results(tmp_path)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(InvalidInput, match="a folder"):
        Results(tmp_path / "x")


def test_keys_tell_runs_apart():
    assert key_of({"a": 1, "b": 2}, 3) == key_of({"b": 2, "a": 1}, 3)
    assert key_of({"a": 1}, 3) != key_of({"a": 1}, 4)
