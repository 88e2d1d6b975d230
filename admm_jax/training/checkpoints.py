"""Checkpoints: the whole state as orbax arrays, a manifest that vouches for it, and a way back if one is damaged.

    checkpoints/00000120/state/        orbax
    checkpoints/00000120/manifest.json round, counters, fingerprint of the state

A checkpoint is built beside its place and renamed into it, so one that exists is complete.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from admm_jax.errors import InvalidInput
from admm_jax.training.state import TrainState, sha256

ENVIRONMENT_FIELDS = ("environment", "observation", "scores")


class Restored(NamedTuple):
    """A state and what its manifest says."""

    state: TrainState
    manifest: dict


class Checkpoints:
    """The checkpoints of a run.

    Args:
        path: their folder.
        keep: how many of the newest to keep.
        with_environments: whether environments can be saved; if not, they start anew on restoring.
    """

    def __init__(self, path: Path, keep: int, with_environments: bool) -> None:
        self.path = path.absolute()
        self.keep = keep
        self.with_environments = with_environments

    def rounds(self) -> list[int]:
        """Rounds that have a checkpoint, oldest first."""
        if not self.path.exists():
            return []
        return sorted(int(entry.name) for entry in self.path.iterdir() if entry.name.isdigit())

    def save(self, round_index: int, state: TrainState, manifest: dict) -> None:
        """Save ``state`` as the checkpoint of a round; afterwards only the newest ``keep`` remain."""
        saved = self._saved_part(state)
        final = self.path / f"{round_index:08d}"
        partial = self.path / f".{round_index:08d}.partial"
        for leftover in (partial, final):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir(parents=True)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(partial / "state", jax.tree.map(np.asarray, saved))
        content = manifest | {
            "round": round_index,
            "state_sha256": sha256(saved),
            "with_environments": self.with_environments,
        }
        (partial / "manifest.json").write_text(json.dumps(content, indent=2) + "\n")
        partial.rename(final)
        for old in self.rounds()[: -self.keep]:
            shutil.rmtree(self.path / f"{old:08d}")

    def restore(self, fresh: TrainState, warn: Callable[[str], None]) -> Restored:
        """The newest checkpoint that can be read and matches its fingerprint.

        Args:
            fresh: a new state of the same run: its structure is what is expected, its environments are used where
                they could not be saved.
            warn: told about each checkpoint that is damaged; nothing is deleted.

        Raises:
            InvalidInput: there is no checkpoint, or none is intact.
        """
        rounds = self.rounds()
        if not rounds:
            raise InvalidInput("resume", str(self.path.parent), "the folder of a run that has a checkpoint")
        damaged: list[Path] = []
        for round_index in reversed(rounds):
            folder = self.path / f"{round_index:08d}"
            try:
                restored = self._read(folder, fresh)
            except Exception as error:  # whatever a damaged file makes orbax, JSON or the file system raise
                reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
                warn(f"checkpoint {folder} is damaged and was passed over: {reason}")
                damaged.append(folder)
                continue
            for folder in damaged:  # out of the way of the checkpoint that will take its place, but kept
                folder.rename(_unused(folder.with_name(f"{folder.name}.damaged")))
            return restored
        raise InvalidInput("resume", str(self.path.parent), "the folder of a run with an intact checkpoint")

    def _read(self, folder: Path, fresh: TrainState) -> Restored:
        manifest = json.loads((folder / "manifest.json").read_text())
        expected = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self._saved_part(fresh))
        with ocp.StandardCheckpointer() as checkpointer:
            saved = jax.tree.map(np.asarray, checkpointer.restore(folder / "state", expected))
        if sha256(saved) != manifest["state_sha256"]:
            raise ValueError("its content does not match its fingerprint")
        parts = {
            name: _as_keys_of(getattr(fresh, name), saved[name]) if name in saved else getattr(fresh, name)
            for name in TrainState._fields
        }
        return Restored(TrainState(**parts), manifest)

    def _saved_part(self, state: TrainState) -> dict[str, Any]:
        return saved_part(state, self.with_environments)


def saved_part(state: TrainState, with_environments: bool) -> dict[str, Any]:
    """The part of a state that a checkpoint holds, random keys as plain numbers."""
    parts = state._asdict()
    if not with_environments:
        parts = {name: part for name, part in parts.items() if name not in ENVIRONMENT_FIELDS}
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, parts)


def _unused(path: Path) -> Path:
    candidates = [path, *(path.with_name(f"{path.name}-{number}") for number in range(2, 100))]
    return next(candidate for candidate in candidates if not candidate.exists())


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_keys_of(fresh: Any, saved: Any) -> Any:
    return jax.tree.map(
        lambda new, old: jax.random.wrap_key_data(old, impl=jax.random.key_impl(new)) if _is_key(new) else old,
        fresh,
        saved,
    )
