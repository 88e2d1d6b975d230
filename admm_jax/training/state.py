"""All state that training carries from one round to the next."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import jax
import numpy as np

from admm_jax.consensus import ConsensusState
from admm_jax.parallel import REPLICATED, SHARDED
from admm_jax.rl.observations import ObservationMoments
from admm_jax.rl.rollout import EpisodeScores


class Adam(NamedTuple):
    """Moments of Adam (Kingma & Ba 2015, algorithm 1), one set per worker; leaves [W, ...].

    Attributes:
        count: steps taken, int32 [W].
        mu: decaying mean of gradients. nu: of their squares.
    """

    count: jax.Array
    mu: Any
    nu: Any


class Counters(NamedTuple):
    """Totals since the start, int32 scalars equal on every device.

    Attributes:
        env_steps: valid agent steps of all workers.
        episodes: finished episodes.
    """

    env_steps: jax.Array
    episodes: jax.Array


class TrainState(NamedTuple):
    """Everything: training goes on from it as if it had never stopped (environments permitting).

    Attributes:
        consensus: z, duals, penalty, round number.
        adam: local optimisers; None where workers have none of their own.
        environment: state of all environments; leading axes divisible by the number of devices.
        observation: what each environment's policy acts on next, [W, E, *obs].
        scores: episodes in progress, [W, E].
        moments: of all observations up to the last exchange, common to all workers; None if they are not normalised.
        counters: totals.
        seed: of everything random, int32 scalar: data, so that runs that differ in it share one program.
    """

    consensus: ConsensusState
    adam: Adam | None
    environment: Any
    observation: jax.Array
    scores: EpisodeScores
    moments: ObservationMoments | None
    counters: Counters
    seed: jax.Array


STATE_SPECS = TrainState(
    consensus=ConsensusState(shared=REPLICATED, workers=SHARDED),
    adam=SHARDED,
    environment=SHARDED,
    observation=SHARDED,
    scores=SHARDED,
    moments=REPLICATED,
    counters=REPLICATED,
    seed=REPLICATED,
)
"""How the state lies on a mesh: workers and environments split over the devices, the consensus on each of them."""


def sha256(tree: Any) -> str:
    """Fingerprint of a pytree: names, dtypes, shapes and bits of all leaves (keys of random numbers included)."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.ascontiguousarray(jax.device_get(leaf))
        digest.update(f"{jax.tree_util.keystr(path)}:{array.dtype}:{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
