"""The folder of a run: one process at a time, one run per folder, rows that are never lost.

config.json        everything that defines the run, and the software it ran on
metrics.jsonl      a row per round (or every few)
evaluations.jsonl  a row per evaluation of z
events.jsonl       what a reader must know: resumed, fell back, workers failed
summary.json       the result, written at the end
policy.npz         z and observation statistics as saved last: with config.json, all that playing needs
page.png, z.gif    curves of the run, and a game of z where there is something to see
checkpoints/       see checkpoints.py
tensorboard/       the metrics again, for looking at
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tensorboardX import SummaryWriter

from admm_jax.errors import InvalidInput

CONFIG, SUMMARY, LOCK = "config.json", "summary.json", ".lock"


class RunFolder:
    """An open run folder; a context manager that holds its lock.

    Use `create` or `reopen`.
    """

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self._lock = lock
        self._writer: SummaryWriter | None = None

    @classmethod
    def create(cls, path: Path, config: dict) -> RunFolder:
        """A new folder holding ``config``.

        Raises:
            InvalidInput: the folder already holds a run, or another process uses it.
        """
        check_vacant(path)
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path, _lock(path, "run_dir"))
        if (path / CONFIG).exists():
            folder.close()
            raise InvalidInput("run_dir", str(path), "a folder that does not hold a run yet")
        folder.write_json(CONFIG, config)
        return folder

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """The folder of an existing run.

        Raises:
            InvalidInput: there is no run, or another process uses it.
        """
        read_config(path)
        return cls(path, _lock(path, "resume"))

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush, and let other processes in."""
        if self._writer is not None:
            self._writer.close()
        self._lock.release()

    def write_json(self, name: str, content: dict) -> None:
        """Write a file whole or not at all."""
        target = self.path / name
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps(jsonable(content), indent=2) + "\n")
        os.replace(partial, target)

    def append(self, name: str, row: dict) -> None:
        """Append a row to a .jsonl file."""
        with (self.path / name).open("a") as file:
            file.write(json.dumps(jsonable(row)) + "\n")

    def event(self, kind: str, **details: Any) -> None:
        """Record something that a reader of the run must know."""
        self.append("events.jsonl", {"time": time.strftime("%Y-%m-%dT%H:%M:%S"), "event": kind, **details})

    def metrics(self, row: dict) -> None:
        """A row of metrics, to metrics.jsonl and TensorBoard."""
        self.append("metrics.jsonl", row)
        self._scalars("train", row)

    def evaluation(self, row: dict) -> None:
        """A row on an evaluation of z."""
        self.append("evaluations.jsonl", row)
        self._scalars("eval", row)

    def go_back_to(self, round_index: int) -> None:
        """Move rows of later rounds out of the way: they were not saved and will be made again."""
        for name in ("metrics.jsonl", "evaluations.jsonl"):
            path = self.path / name
            if not path.exists():
                continue
            kept, later = [], []
            for line in path.read_text().splitlines():
                try:
                    (later if json.loads(line)["round"] > round_index else kept).append(line)
                except (json.JSONDecodeError, KeyError):
                    later.append(line)  # cut off while it was written
            if later:
                with (self.path / "superseded.jsonl").open("a") as file:
                    file.writelines(line + "\n" for line in later)
                partial = path.with_suffix(".partial")
                partial.write_text("".join(line + "\n" for line in kept))
                os.replace(partial, path)

    def _scalars(self, prefix: str, row: dict) -> None:
        if self._writer is None:
            self._writer = SummaryWriter(str(self.path / "tensorboard"))
        for name, value in row.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                self._writer.add_scalar(f"{prefix}/{name}", value, row["env_steps"])


def check_vacant(path: Path) -> None:
    """Raises InvalidInput if ``path`` holds a run already, or is no folder."""
    if path.exists() and not path.is_dir():
        raise InvalidInput("run_dir", str(path), "a folder")
    if (path / CONFIG).exists():
        raise InvalidInput("run_dir", str(path), "a folder that does not hold a run yet (or use --resume)")


def read_config(path: Path) -> dict:
    """config.json of a run.

    Raises:
        InvalidInput: there is none, or it cannot be read.
    """
    try:
        return json.loads((path / CONFIG).read_text())
    except OSError as error:
        raise InvalidInput("resume", str(path), f"the folder of a run, with a {CONFIG}") from error
    except json.JSONDecodeError as error:
        raise InvalidInput("resume", str(path), f"the folder of a run whose {CONFIG} can be read ({error})") from error


def read_rows(path: Path) -> list[dict]:
    """All rows of a .jsonl file; none if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def jsonable(value: Any) -> Any:
    """Numbers that JSON lacks become null, paths become strings, floats keep 7 digits."""
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    number = float(value)
    return float(f"{number:.7g}") if math.isfinite(number) else None


def _lock(path: Path, field: str) -> FileLock:
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InvalidInput(field, str(path), "a folder that no other process is using") from error
    return lock
