"""The collectives that consensus rules agree through, on a mesh of devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from admm_jax.consensus.trees import PyTree, sum_over_workers
from admm_jax.parallel.mesh import DEVICE_AXIS


class MeshReduction:
    """Sums and gathers over all workers, inside a function that runs on every device of a `WorkerMesh`.

    The workers of a device are summed first, then one all-reduce runs over the devices. (A named axis for the workers
    as well, reduced together with the device axis, would fail JAX's check that results are replicated.)
    """

    def sum(self, tree: PyTree) -> PyTree:
        """Leaves [W / D, ...] -> [...], equal on every device."""
        return jax.lax.psum(sum_over_workers(tree), DEVICE_AXIS)

    def gather(self, tree: PyTree) -> PyTree:
        """Leaves [W / D, ...] -> [W, ...] in the order of workers, equal on every device."""

        def gather_leaf(leaf: jax.Array) -> jax.Array:
            share = leaf.shape[0]
            slots = jnp.zeros((jax.lax.axis_size(DEVICE_AXIS) * share, *leaf.shape[1:]), leaf.dtype)
            first = jax.lax.axis_index(DEVICE_AXIS) * share
            # A sum of one-hot shares, since an all_gather would not count as replicated. It makes numbers of booleans.
            shares = jax.lax.dynamic_update_slice_in_dim(slots, leaf, first, axis=0)
            return jax.lax.psum(shares, DEVICE_AXIS).astype(leaf.dtype)

        return jax.tree.map(gather_leaf, tree)

    def own(self, tree: PyTree) -> PyTree:
        """Leaves [W, ...], in the order of workers -> this device's [W / D, ...]."""

        def own_leaf(leaf: jax.Array) -> jax.Array:
            share = leaf.shape[0] // jax.lax.axis_size(DEVICE_AXIS)
            first = jax.lax.axis_index(DEVICE_AXIS) * share
            return jax.lax.dynamic_slice_in_dim(leaf, first, share, axis=0)

        return jax.tree.map(own_leaf, tree)
