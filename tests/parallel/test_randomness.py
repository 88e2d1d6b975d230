"""Random numbers of training depend on (seed, worker, round) alone."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.parallel import SHARDED, Stream, WorkerMesh, local_workers, split_each, stream_key, worker_keys


def data(keys):
    return np.asarray(jax.random.key_data(keys))


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_keys_do_not_depend_on_the_number_of_devices(devices):
    mesh = WorkerMesh(8, devices)

    def own_keys():
        return jax.random.key_data(worker_keys(3, local_workers(mesh.workers_per_device), jnp.asarray(11)))

    everyone = mesh.on_every_device(own_keys, (), SHARDED)()
    np.testing.assert_array_equal(everyone, data(worker_keys(3, jnp.arange(8), jnp.asarray(11))))


def test_keys_do_not_depend_on_the_number_of_workers():
    few, many = (data(worker_keys(5, jnp.arange(count), jnp.asarray(2))) for count in (3, 9))
    np.testing.assert_array_equal(few, many[:3])


def test_seed_worker_round_and_stream_all_matter():
    keys = [
        tuple(data(worker_keys(seed, jnp.array([worker]), jnp.asarray(index)))[0])
        for seed, worker, index in itertools.product((0, 1), (0, 1, 2), (0, 1, 2))
    ]
    keys += [tuple(data(stream_key(seed, stream))) for seed in (0, 1) for stream in Stream]
    assert len(set(keys)) == len(keys)


def test_split_each_is_a_split_per_worker():
    keys = worker_keys(1, jnp.arange(4), jnp.asarray(0))
    np.testing.assert_array_equal(data(split_each(keys, 3))[2], data(jax.random.split(keys[2], 3)))
