"""What every command-line script shares: a frozen dataclass as the flags, and errors that name the flag."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import tyro

from admm_jax.errors import InvalidInput

Config = TypeVar("Config")


def parse(config: type[Config], arguments: Sequence[str] | None = None) -> Config:
    """A config from command-line arguments; its docstrings become the help.

    Args:
        config: a dataclass that validates itself at construction.
        arguments: without the program's name; those of the process if None.

    Raises:
        InvalidInput: from the config's own validation, as it was raised.
        SystemExit: after ``--help`` (0), or an unknown flag or a malformed value (2, message on stderr).
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return tyro.cli(config, args=arguments)
    except SystemExit as stopped:
        # tyro prints a ValueError of a constructor in a box that breaks lines; the error itself is clearer.
        error: BaseException | None = stopped
        while error is not None and not isinstance(error, InvalidInput):
            error = error.__context__
        if error is not None:
            printed = io.StringIO()
            raise error from None
        raise
    finally:
        sys.stderr.write(printed.getvalue())


def run(main: Callable[[Sequence[str]], object]) -> None:
    """Call ``main`` with the process's arguments; on `InvalidInput` print its message to stderr and exit with 2."""
    try:
        main(sys.argv[1:])
    except InvalidInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)
