"""Flags from a dataclass, and errors that reach the user whole."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from admm_jax.cli import parse, run
from admm_jax.errors import InvalidInput, finite


@dataclass(frozen=True)
class Flags:
    """Flags of a test.

    Args:
        rho: some number above 0.
    """

    rho: float = 2.0

    def __post_init__(self) -> None:
        finite("rho", self.rho, above=0)


@dataclass(frozen=True)
class Nested:
    flags: Flags = Flags()


def test_flags_become_a_config():
    assert parse(Flags, ["--rho", "3.5"]) == Flags(3.5)


@pytest.mark.parametrize(("config", "flag"), [(Flags, "--rho"), (Nested, "--flags.rho")])
def test_an_invalid_value_is_raised_as_it_was_and_nothing_is_printed(capsys, config, flag):
    with pytest.raises(InvalidInput) as refused:
        parse(config, [flag, "-1"])
    assert (refused.value.field, refused.value.value) == ("rho", -1)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["--roh", "1"], 2), (["--rho", "x"], 2)])
def test_what_the_parser_itself_says(capsys, arguments, code):
    with pytest.raises(SystemExit) as stopped:
        parse(Flags, arguments)
    assert stopped.value.code == code
    printed = capsys.readouterr()
    assert "--rho" in (printed.err if code else printed.out)
    assert (printed.out if code else printed.err) == ""


def test_run_prints_the_message_and_exits_with_2(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["script", "--rho", "-1"])
    with pytest.raises(SystemExit) as stopped:
        run(lambda arguments: parse(Flags, arguments))
    assert stopped.value.code == 2
    assert capsys.readouterr() == ("", "rho = -1.0 is not allowed: rho must be a finite number > 0\n")
