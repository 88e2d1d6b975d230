"""Ctrl-C and SIGTERM as a request to finish the round, save and leave."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """A context in which the first SIGINT or SIGTERM is remembered and a second SIGINT ends the process at once.

    Attributes:
        signal: number of the signal received, or None.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """128 + signal, as shells expect it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or 0)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.signal is not None and number == signal.SIGINT:
            os._exit(128 + number)
        self.signal = number
        os.write(2, b"\nfinishing this round, then saving (Ctrl-C again to leave at once)\n")
