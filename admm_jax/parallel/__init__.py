"""Where workers live: mapping over a device, sharding over devices, the reductions they agree through, their keys."""

from admm_jax.parallel.mapping import (
    Mapping,
    MappingChoice,
    map_workers,
    resolve_mapping,
    with_fixed_parameters,
)
from admm_jax.parallel.mesh import (
    DEVICE_AXIS,
    REPLICATED,
    SHARDED,
    WorkerMesh,
    check_worker_count,
    each_device_its_own,
    request_devices,
    split_host,
)
from admm_jax.parallel.randomness import (
    Stream,
    fold_each,
    local_workers,
    split_each,
    stream_key,
    worker_keys,
)
from admm_jax.parallel.reduction import MeshReduction

__all__ = [
    "DEVICE_AXIS",
    "REPLICATED",
    "SHARDED",
    "Mapping",
    "MappingChoice",
    "MeshReduction",
    "Stream",
    "WorkerMesh",
    "check_worker_count",
    "each_device_its_own",
    "fold_each",
    "local_workers",
    "map_workers",
    "request_devices",
    "resolve_mapping",
    "split_each",
    "split_host",
    "stream_key",
    "with_fixed_parameters",
    "worker_keys",
]
