"""One line of live progress: rewritten in place in a terminal, printed now and then in a log."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Prints how far a run is.

    Args:
        total_steps: where it ends.
        enabled: print at all.
        stream: where to.
        every: seconds between lines in a log.
    """

    def __init__(
        self, total_steps: int, enabled: bool = True, stream: TextIO | None = None, every: float = 10.0
    ) -> None:
        self.total_steps = total_steps
        self.enabled = enabled
        self.stream = sys.stdout if stream is None else stream
        self.live = self.stream.isatty()
        self.every = 0.5 if self.live else every
        self._last = -float("inf")
        self._open_line = False

    def update(self, fields: dict[str, float], steps_per_second: float) -> None:
        """Show a row of metrics, if it is time to."""
        now = time.monotonic()
        if not self.enabled or now - self._last < self.every:
            return
        self._last = now
        steps = fields["env_steps"]
        left = max(0.0, self.total_steps - steps) / steps_per_second if steps_per_second > 0 else float("nan")
        text = (
            f"{int(steps):>10,} steps {100 * min(1.0, steps / self.total_steps):5.1f}% "
            f"{steps_per_second:7,.0f}/s {_clock(left)} left | return {fields['recent_return']:8.2f} "
            f"eval {fields['last_eval']:8.2f} | |r| {fields['primal_residual']:.3g} |s| {fields['dual_residual']:.3g} "
            f"entropy {fields['entropy']:.2f} | {_size(fields['bytes_sent_per_worker'])} up per worker"
        )
        if self.live:
            self.stream.write("\r\x1b[2K" + text)
            self._open_line = True
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    def message(self, text: str) -> None:
        """Print a line that stays."""
        if self._open_line:
            self.stream.write("\n")
            self._open_line = False
        if self.enabled:
            self.stream.write(text + "\n")
            self.stream.flush()

    def warning(self, text: str) -> None:
        """Print a line that stays, on stderr, whether or not progress is shown."""
        if self._open_line:
            self.stream.write("\n")
            self._open_line = False
        print(f"warning: {text}", file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    if seconds != seconds or seconds > 359_999:
        return "--:--:--"
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
