"""Where random numbers come from. Those of training depend on (seed, worker, round) alone, so that neither the number
of devices, nor the mapping, nor an interruption changes them."""

from __future__ import annotations

from enum import IntEnum

import jax
import jax.numpy as jnp

from admm_jax.parallel.mesh import DEVICE_AXIS


class Stream(IntEnum):
    """Uses of one seed that must not share numbers."""

    TRAINING = 0
    INITIALISATION = 1
    ENVIRONMENTS = 2
    EVALUATION = 3
    SCRIPT = 9


def stream_key(seed: int | jax.Array, stream: Stream) -> jax.Array:
    """The key of one use of ``seed``."""
    return jax.random.fold_in(jax.random.key(seed), int(stream))


def worker_keys(seed: int | jax.Array, workers: jax.Array, round_index: jax.Array) -> jax.Array:
    """Keys [W] of a round: worker numbers [W] and the round's number, from 0."""
    base = stream_key(seed, Stream.TRAINING)
    return jax.vmap(lambda worker: jax.random.fold_in(jax.random.fold_in(base, worker), round_index))(workers)


def local_workers(workers_per_device: int) -> jax.Array:
    """Numbers [W / D] of the workers on this device, inside a function that runs on every device."""
    return jax.lax.axis_index(DEVICE_AXIS) * workers_per_device + jnp.arange(workers_per_device)


def split_each(keys: jax.Array, count: int) -> jax.Array:
    """Keys [W] -> [W, count]."""
    return jax.vmap(lambda key: jax.random.split(key, count))(keys)


def fold_each(keys: jax.Array, number: jax.Array | int) -> jax.Array:
    """Keys [W] -> [W], each with ``number`` folded in."""
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)
