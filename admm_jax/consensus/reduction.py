"""How rules see the other workers: one sum and one gather, handed in by whoever knows where workers live."""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp

from admm_jax.consensus.trees import PyTree, per_worker, sum_over_workers


class Reduction(Protocol):
    """Collectives over all workers. Leaves carry the caller's workers as their leading axis W."""

    def sum(self, tree: PyTree) -> PyTree:
        """Sum over every worker; leaves [W, ...] -> [...], equal for all callers."""
        ...

    def gather(self, tree: PyTree) -> PyTree:
        """Every worker's part, in the order of workers; leaves [W, ...] -> [all workers, ...]."""
        ...

    def own(self, tree: PyTree) -> PyTree:
        """The caller's part of what was gathered; leaves [all workers, ...] -> [W, ...]."""
        ...


class LocalReduction:
    """All workers are in the caller's hands: plain sums over the leading axis."""

    def sum(self, tree: PyTree) -> PyTree:
        return sum_over_workers(tree)

    def gather(self, tree: PyTree) -> PyTree:
        return tree

    def own(self, tree: PyTree) -> PyTree:
        return tree


def weighted_mean(
    tree: PyTree, weight: jax.Array, reduction: Reduction, extra: PyTree = ()
) -> tuple[PyTree, jax.Array, PyTree]:
    """Weighted mean over workers, with further sums riding on the same collective.

    Args:
        tree: leaves [W, ...].
        weight: [W], not negative; a worker of weight 0 is left out even if its numbers are not finite.
        reduction: the collective.
        extra: leaves [W, ...] to be summed (unweighted) in the same call.

    Returns:
        The mean (leaves [...]; 0 where the weights sum to 0), the sum of the weights, the sums of ``extra``.
    """

    def weigh(leaf: jax.Array) -> jax.Array:
        # Masking the input, not the product: 0 x NaN is NaN.
        scale = per_worker(weight, leaf).astype(leaf.dtype)
        return jnp.where(scale > 0, leaf, 0) * scale

    total, weight_sum, extra_sum = reduction.sum((jax.tree.map(weigh, tree), weight, extra))
    safe = jnp.where(weight_sum > 0, weight_sum, 1)
    return jax.tree.map(lambda leaf: leaf / safe.astype(leaf.dtype), total), weight_sum, extra_sum
