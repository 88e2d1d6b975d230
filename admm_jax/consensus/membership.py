"""Workers that come, go, or have to be set right. After each of these the weighted duals sum to 0 again."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from admm_jax.consensus.reduction import Reduction, weighted_mean
from admm_jax.consensus.state import ConsensusState, Workers
from admm_jax.consensus.trees import PyTree, copies, select


def recentre(workers: Workers, reduction: Reduction) -> Workers:
    """Subtract the weighted mean from all duals, and the same from the contributions that contain them."""
    if workers.scaled_dual is None:
        return workers
    mean, _, _ = weighted_mean(workers.scaled_dual, workers.weight, reduction)
    return _shift_duals(workers, jax.tree.map(lambda u, m: u - m, workers.scaled_dual, mean))


def forget_duals(workers: Workers, forget: jax.Array, reduction: Reduction) -> Workers:
    """Set the duals of some workers to 0 and re-centre all; their failure counts start again.

    Nothing changes if nobody forgets: duals that do not sum to 0, because some workers were absent lately or the
    consensus carries a regulariser, are as they should be.

    Args:
        workers: leaves [W, ...].
        forget: bool [W].
        reduction: collectives over all workers.
    """
    workers = workers._replace(failures=jnp.where(forget, 0, workers.failures))
    if workers.scaled_dual is None:
        return workers
    zeros = jax.tree.map(jnp.zeros_like, workers.scaled_dual)
    mended = recentre(_shift_duals(workers, select(forget, zeros, workers.scaled_dual)), reduction)
    anyone = reduction.sum(forget.astype(jnp.int32)) > 0
    return jax.tree.map(lambda new, old: jnp.where(anyone, new, old), mended, workers)


def remove(state: ConsensusState, leaving: int, reduction: Reduction) -> ConsensusState:
    """Let one worker go: the duals of those who stay are re-centred, so that they sum to 0 without it.

    Raises:
        ValueError: no worker of that number, or the last one would leave.
    """
    num_workers = state.workers.weight.shape[0]
    if not 0 <= leaving < num_workers or num_workers == 1:
        raise ValueError(f"cannot remove worker {leaving} of {num_workers}")
    stay = jnp.array([index for index in range(num_workers) if index != leaving])
    remaining = jax.tree.map(lambda leaf: leaf[stay], state.workers)
    return state._replace(workers=recentre(remaining, reduction))


def join(state: ConsensusState, weight: float = 1.0) -> ConsensusState:
    """Append a worker at theta = z with dual 0, which leaves z and the sum of the duals as they are."""
    newcomer_theta = copies(state.shared.z, 1)
    old = state.workers
    newcomer = Workers(
        theta=newcomer_theta,
        scaled_dual=None if old.scaled_dual is None else jax.tree.map(jnp.zeros_like, newcomer_theta),
        contribution=newcomer_theta,
        weight=jnp.full(1, weight, old.weight.dtype),
        failures=jnp.zeros(1, old.failures.dtype),
    )
    workers = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), old, newcomer)
    return state._replace(workers=workers)


def _shift_duals(workers: Workers, scaled_dual: PyTree) -> Workers:
    contribution = jax.tree.map(
        lambda c, new, old: c + new - old, workers.contribution, scaled_dual, workers.scaled_dual
    )
    return workers._replace(scaled_dual=scaled_dual, contribution=contribution)
