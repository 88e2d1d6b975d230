"""How long to train, how to look at it, where to keep it: settings that do not change what is learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from admm_jax.errors import InvalidInput, at_least, finite


@dataclass(frozen=True)
class RunOptions:
    """One session of training.

    Raises:
        InvalidInput: a setting outside its range.
    """

    total_steps: int = 3_000_000
    """Stop after the first round with this many valid agent steps of all workers."""
    target_return: float | None = None
    """Stop earlier, once the mean score of z over final-episodes games reaches this. [default: never]"""
    eval_every: int = 200_000
    """Agent steps between evaluations of z; 0 for one at the end only."""
    eval_episodes: int = 8
    """Full games of an evaluation on the way, one per environment."""
    final_episodes: int = 30
    """Full games of the last evaluation, and of one that confirms the target."""
    greedy: bool = False
    """Evaluate the most probable action instead of a sampled one."""
    devices: int | None = None
    """Devices D to spread the workers over; on CPU the host is split into as many. [default: as many as there are
    and divide the workers; 1 on CPU]"""
    run_dir: Path | None = None
    """Folder of the run. [default: runs/ENV-RULE-sSEED-TIME]"""
    resume: Path | None = None
    """Folder of a run to go on with."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; 0 for every round. There is one at the end in any case."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints to keep."""
    log_every: int = 1
    """Rounds per row of metrics.jsonl and TensorBoard."""
    gif: bool = True
    """Record a game of z at the end, where the environment has pictures."""
    compilation_cache: bool = True
    """Keep compiled programs for the next start, in $JAX_COMPILATION_CACHE_DIR or ~/.cache/admm_jax (not with Atari,
    whose programs hold the addresses of running emulators)."""
    progress: bool = True
    """Show live progress."""

    def __post_init__(self) -> None:
        at_least("total_steps", self.total_steps, 1)
        at_least("eval_every", self.eval_every, 0)
        at_least("eval_episodes", self.eval_episodes, 1)
        at_least("final_episodes", self.final_episodes, 1)
        at_least("keep_checkpoints", self.keep_checkpoints, 2)
        at_least("log_every", self.log_every, 1)
        finite("checkpoint_minutes", self.checkpoint_minutes, low=0)
        if self.devices is not None:
            at_least("devices", self.devices, 1)
        if self.target_return is not None and not math.isfinite(self.target_return):
            raise InvalidInput("target_return", self.target_return, "a finite number")
