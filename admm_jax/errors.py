"""Errors that a user can mend: they name what was given and what would be accepted."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence


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


def one_of(field: str, value: str, choices: Sequence[str], where: str = "") -> None:
    """Raises InvalidInput, naming what comes nearest, unless ``value`` is one of the choices (``where`` they apply)."""
    if value not in choices:
        close = nearest(str(value), choices, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise InvalidInput(field, value, f"one of {', '.join(choices)}{where}{hint}")


def at_least(field: str, value: int, low: int) -> None:
    """Raises InvalidInput unless ``value`` is a whole number >= ``low``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidInput(field, value, f"a whole number of at least {low}")


def finite(
    field: str,
    value: float,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
) -> None:
    """Raises InvalidInput unless ``value`` is finite and inside the range."""
    parts = [
        f">= {low:g}" if low is not None else "",
        f"> {above:g}" if above is not None else "",
        f"<= {high:g}" if high is not None else "",
        f"< {below:g}" if below is not None else "",
    ]
    inside = (
        math.isfinite(value)
        and (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
        and (below is None or value < below)
    )
    if not inside:
        raise InvalidInput(field, value, "a finite number " + " and ".join(part for part in parts if part))
