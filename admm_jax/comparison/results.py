"""Results as rows of a JSONL file: appended as runs finish, never repeated, never mixed with another layout.

results.jsonl   a row per run
schema.json     the version of its layout
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from admm_jax.errors import InvalidInput
from admm_jax.training.run_folder import jsonable, read_rows

SCHEMA_VERSION = 1
ROWS, SCHEMA = "results.jsonl", "schema.json"


class Results:
    """The rows in a folder.

    Args:
        folder: need not exist; made with the first row.

    Raises:
        InvalidInput: it holds results of another layout.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise InvalidInput("out", str(folder), "a folder")
        version = self._version()
        if version is not None and version != SCHEMA_VERSION:
            raise InvalidInput(
                "out",
                str(folder),
                f"a folder with results of schema version {SCHEMA_VERSION}; this one's is {version}. Results of "
                "another version cannot be added to: give another folder, or move this one away",
            )
        self.rows = read_rows(folder / ROWS)

    def _version(self) -> int | str | None:
        if (self.folder / SCHEMA).exists():
            try:
                return json.loads((self.folder / SCHEMA).read_text())["version"]
            except (json.JSONDecodeError, KeyError, TypeError):
                return "unreadable"
        return "unknown" if (self.folder / ROWS).exists() else None

    def has(self, key: str) -> bool:
        """Whether a run is there."""
        return any(row["key"] == key for row in self.rows)

    def add(self, rows: Iterable[dict]) -> None:
        """Append rows; they are on disk when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / SCHEMA).write_text(json.dumps({"version": SCHEMA_VERSION}) + "\n")
        rows = [jsonable(row) for row in rows]
        with (self.folder / ROWS).open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        self.rows += rows


def key_of(*parts: object) -> str:
    """A name that two runs share only if everything about them is the same."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]
