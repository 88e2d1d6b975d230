"""How often JAX compiled something."""

from __future__ import annotations

import jax

COMPILED = "/jax/core/compile/backend_compile_duration"

_durations: list[float] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **_: _durations.append(seconds) if name == COMPILED else None
)


class Compilations:
    """Counts compilations inside a with block, in ``count``."""

    def __enter__(self) -> Compilations:
        self._before = len(_durations)
        return self

    def __exit__(self, *_: object) -> None:
        self.count = len(_durations) - self._before
