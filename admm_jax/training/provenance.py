"""What a run was made with."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path

import jax

import admm_jax

PACKAGES = ("jax", "jaxlib", "flax", "optax", "gymnax", "envpool", "numpy", "orbax-checkpoint")


def versions() -> dict[str, str | None]:
    """Versions of the software that numbers depend on; None where it is not installed."""
    found: dict[str, str | None] = {"admm_jax": admm_jax.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def hardware() -> dict[str, str | int]:
    """Platform, kind and number of JAX's devices."""
    return {
        "platform": jax.default_backend(),
        "device_kind": jax.devices()[0].device_kind,
        "device_count": jax.device_count(),
    }


def git_commit() -> str | None:
    """Commit of the checkout the package lies in, "-dirty" if files were changed since; None outside one."""
    here = Path(admm_jax.__file__).resolve().parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != here.parent:
            return None
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", "../experiments")
        return git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
