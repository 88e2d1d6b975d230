"""W workers on D devices: validation, placement, replication."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.errors import InvalidInput
from admm_jax.parallel import (
    REPLICATED,
    SHARDED,
    MeshReduction,
    WorkerMesh,
    check_worker_count,
    each_device_its_own,
    local_workers,
    request_devices,
)


@pytest.mark.parametrize(
    ("workers", "devices", "field"), [(0, 1, "workers"), (-2, 1, "workers"), (6, 4, "workers"), (4, 0, "devices")]
)
def test_counts_that_do_not_fit_are_refused(workers, devices, field):
    with pytest.raises(InvalidInput, match=field) as caught:
        check_worker_count(workers, devices)
    assert caught.value.field == field


def test_more_devices_than_there_are():
    with pytest.raises(InvalidInput, match="at most 8"):
        request_devices(9)
    with pytest.raises(InvalidInput, match="at most 8"):
        WorkerMesh(16, 16)


def test_enough_devices_are_granted():
    request_devices(5)


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_every_device_sees_its_own_workers(devices):
    mesh = WorkerMesh(8, devices)
    numbers = mesh.on_every_device(lambda: local_workers(mesh.workers_per_device), (), SHARDED)()
    np.testing.assert_array_equal(numbers, np.arange(8))


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_sum_and_gather(devices):
    mesh = WorkerMesh(8, devices)
    values = {"a": jnp.arange(24.0).reshape(8, 3) ** 2, "b": jnp.arange(8) + 5}
    reduction = MeshReduction()
    run = mesh.on_every_device(
        lambda tree: (reduction.sum(tree), reduction.gather(tree)), (SHARDED,), (REPLICATED, REPLICATED)
    )
    total, everyone = jax.jit(run)(mesh.place(values, SHARDED))
    for name, value in values.items():
        np.testing.assert_allclose(total[name], np.asarray(value).sum(axis=0), rtol=1e-6)
        np.testing.assert_array_equal(everyone[name], value)


def test_place_splits_and_repeats():
    mesh = WorkerMesh(4, 2)
    placed = mesh.place((jnp.arange(4.0), jnp.ones(3)), (SHARDED, REPLICATED))
    assert [shard.data.shape for shard in placed[0].addressable_shards] == [(2,), (2,)]
    assert [shard.data.shape for shard in placed[1].addressable_shards] == [(3,), (3,)]


def test_what_starts_equal_may_become_different():
    mesh = WorkerMesh(4, 4)

    def body(x):
        start = each_device_its_own(x)
        final, _ = jax.lax.scan(lambda c, _: (c + local_workers(1)[0], None), start, None, length=3)
        return final[None]

    result = jax.jit(mesh.on_every_device(body, (REPLICATED,), SHARDED))(jnp.asarray(10.0))
    np.testing.assert_array_equal(result, [10, 13, 16, 19])
