"""Compiled programs kept from one start to the next."""

from __future__ import annotations

import os
from pathlib import Path

import jax

from admm_jax.training.config import TrainConfig


def keep_compiled_programs(config: TrainConfig) -> bool:
    """Use JAX's persistent compilation cache where it can serve; whether it can.

    A program that steps EnvPool holds the addresses of that process's emulators, so another process cannot use it.
    """
    if config.family == "atari":
        return False
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR") or Path(base) / "admm_jax"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    return True
