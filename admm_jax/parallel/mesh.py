"""W workers on D devices: a mesh with one axis, and functions that run on every device's share of the workers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from admm_jax.errors import InvalidInput

DEVICE_AXIS = "devices"


def split_host(count: int) -> None:
    """Ask for ``count`` CPU devices; starts nothing, and has no effect once JAX has started or on accelerators."""
    if count > 1 and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", count)


def request_devices(count: int) -> None:
    """Make sure ``count`` devices can be used; on CPU, split the host into that many if JAX has not started yet.

    Raises:
        InvalidInput: fewer than ``count`` devices are there.
    """
    split_host(count)
    available = jax.device_count()
    if count > available:
        raise InvalidInput("devices", count, f"at most {available}, the number of {jax.default_backend()} devices")


@dataclass(frozen=True)
class WorkerMesh:
    """Where workers live: worker i of W on device i // (W / D).

    Args:
        num_workers: W, a positive multiple of ``num_devices``.
        num_devices: D; the first D devices of JAX are used.

    Raises:
        InvalidInput: W or D is not positive, D does not divide W, or there are fewer than D devices.
    """

    num_workers: int
    num_devices: int = 1

    def __post_init__(self) -> None:
        check_worker_count(self.num_workers, self.num_devices)
        if self.num_devices > jax.device_count():
            raise InvalidInput("devices", self.num_devices, f"at most {jax.device_count()}, the devices JAX sees")

    @property
    def workers_per_device(self) -> int:
        return self.num_workers // self.num_devices

    @property
    def mesh(self) -> Mesh:
        return Mesh(np.array(jax.devices()[: self.num_devices]), (DEVICE_AXIS,))

    def place(self, tree: Any, specs: Any) -> Any:
        """Put arrays on the mesh; ``specs`` is a prefix tree of `SHARDED` and `REPLICATED`."""
        shardings = jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec), specs, is_leaf=lambda x: isinstance(x, PartitionSpec)
        )
        return jax.device_put(tree, shardings)

    def on_every_device(self, function: Callable, in_specs: Any, out_specs: Any) -> Callable:
        """``function`` on each device's share of its arguments (`jax.shard_map`, replication checked)."""
        return jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs)


SHARDED = PartitionSpec(DEVICE_AXIS)
"""Leading axis split over the devices."""
REPLICATED = PartitionSpec()
"""Equal on every device."""


def check_worker_count(num_workers: int, num_devices: int) -> None:
    """Raises InvalidInput unless W and D are positive and D divides W. Starts nothing."""
    if num_devices < 1:
        raise InvalidInput("devices", num_devices, "a whole number of at least 1")
    if num_workers < 1:
        raise InvalidInput("workers", num_workers, "a whole number of at least 1")
    if num_workers % num_devices:
        raise InvalidInput("workers", num_workers, f"a multiple of devices ({num_devices})")


def each_device_its_own(tree: Any) -> Any:
    """Replicated arrays as arrays that may differ by device from here on, inside `WorkerMesh.on_every_device`."""
    return jax.lax.pcast(tree, DEVICE_AXIS, to="varying")
