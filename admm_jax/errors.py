"""Errors that a user can mend: they name what was given and what would be accepted."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InvalidInput(ValueError):
    """A value outside its allowed range, found before anything compiles.

    Command-line scripts print the message and exit with status 2.

    Args:
        field: name of the setting, spelled as the user spells it (``rho``, ``env``).
        value: what was given.
        allowed: the accepted range or choices, as a phrase ("a finite number above 0").
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field} = {value!r} is not allowed: {field} must be {allowed}")


def nearest(name: str, choices: Iterable[str], count: int = 3) -> list[str]:
    """The choices spelled most like ``name``, ignoring case, best first; empty if none comes close."""
    spelled = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), spelled, n=count, cutoff=0.5)
    return [spelled[match] for match in close]
