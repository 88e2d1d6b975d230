"""Workers of one device: all at once (vmap) or one after the other (map).

Which is faster depends on platform and network, so it is one setting with a default that measurements justify
(`experiments/bench_round.py`): on CPU, convolutions with per-worker weights are faster one worker at a time, small
dense networks all at once; accelerators want everything at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

Mapping = Literal["vmap", "map"]
MappingChoice = Literal["auto", "vmap", "map"]

UNROLL_LIMIT = 16
"""Up to this many workers per device are unrolled where their parameters are fixed; compile time grows with it."""


def resolve_mapping(choice: MappingChoice, *, convolutional: bool, platform: str) -> Mapping:
    """``auto`` resolved for a platform ("cpu", "gpu", "tpu") and a kind of network."""
    if choice != "auto":
        return choice
    return "map" if platform == "cpu" and convolutional else "vmap"


def map_workers(function: Callable, mapping: Mapping) -> Callable:
    """``function`` of one worker's arguments, applied to arguments with leading axis W."""
    if mapping == "vmap":
        return jax.vmap(function)
    return lambda *arguments: jax.lax.map(lambda one: function(*one), arguments)


def with_fixed_parameters(function: Callable, parameters: Any, mapping: Mapping) -> Callable:
    """``function(parameters_i, *arguments_i)`` for every worker i, for use in a loop that leaves parameters alone.

    Args:
        function: of one worker's parameters and arguments.
        parameters: leaves [W, ...].
        mapping: "map" unrolls up to `UNROLL_LIMIT` workers, so that the loop does not slice (copy) each worker's
            parameters again in every iteration.

    Returns:
        A function of arguments with leaves [W, ...].
    """
    num_workers = jax.tree.leaves(parameters)[0].shape[0]
    if mapping == "vmap" or num_workers > UNROLL_LIMIT:
        return lambda *arguments: map_workers(function, mapping)(parameters, *arguments)
    each = [_worker(parameters, index) for index in range(num_workers)]

    def unrolled(*arguments: Any) -> Any:
        results = [function(one, *_worker(arguments, index)) for index, one in enumerate(each)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)

    return unrolled


def _worker(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)
