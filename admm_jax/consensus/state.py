"""What a consensus algorithm remembers between rounds."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from admm_jax.consensus.trees import PyTree, copies


class Shared(NamedTuple):
    """Known to everyone and equal everywhere.

    Attributes:
        z: the consensus, leaves [...].
        penalty: rho of the augmented Lagrangian (loss per squared parameter): a scalar, or a tree like z
            when it differs by coordinate (an optimiser's metric).
        round: exchanges so far, int32 scalar.
        momentum: of the consensus itself, leaves [...]; None for rules without it.
    """

    z: PyTree
    penalty: PyTree
    round: jax.Array
    momentum: PyTree | None = None


class Workers(NamedTuple):
    """One entry per worker along the leading axis W.

    Attributes:
        theta: the last local solution, leaves [W, ...].
        scaled_dual: u = lambda / rho, in the unit of the parameters, leaves [W, ...]; None for rules without a dual.
        contribution: what entered the mean last time, leaves [W, ...]; an absent worker is represented by it.
        weight: [W], > 0.
        failures: [W] int32, rounds running whose update was not finite.
    """

    theta: PyTree
    scaled_dual: PyTree | None
    contribution: PyTree
    weight: jax.Array
    failures: jax.Array


class ConsensusState(NamedTuple):
    """All state of a rule: ``shared`` is replicated over devices, ``workers`` is sharded over them."""

    shared: Shared
    workers: Workers


class Residuals(NamedTuple):
    """How far from agreement an exchange was; scalars (Boyd et al. 2011, section 3.3).

    Attributes:
        primal: |r| = sqrt(sum_i |theta_i - z|^2).
        dual: |s| = rho sqrt(N) |z - z_previous| (rho inside the norm where it differs by coordinate).
        relative_primal: |r| / max(|theta|, sqrt(N) |z|).
        relative_dual: |s| / |lambda|; 0 where lambda is 0.
        scaled_dual_norm: |u| = sqrt(sum_i |u_i|^2) after the update.
        cosine: mean cosine between two workers' updates theta_i - z_previous, each pair weighted by the
            product of its norms; exact if everyone takes part and there is no g(z); 0 for one worker, and for rules
            whose duals do not sum to 0.
        failed: workers whose update was not finite in this exchange, float32.
    """

    primal: jax.Array
    dual: jax.Array
    relative_primal: jax.Array
    relative_dual: jax.Array
    scaled_dual_norm: jax.Array
    cosine: jax.Array
    failed: jax.Array


def initial_state(
    params: PyTree,
    num_workers: int,
    *,
    penalty: PyTree,
    weights: jax.Array | None,
    with_dual: bool,
    with_momentum: bool,
) -> ConsensusState:
    """Everyone at ``params`` with a zero dual and no momentum; ``weights`` [W] defaults to 1 for each worker."""
    theta = copies(params, num_workers)
    weight = jnp.ones(num_workers) if weights is None else jnp.asarray(weights, dtype=float)
    if weight.shape != (num_workers,):
        raise ValueError(f"weights have shape {weight.shape}; expected ({num_workers},), one per worker")
    # Leaves that are donated together must not share a buffer, hence the copies.
    return ConsensusState(
        Shared(
            z=jax.tree.map(jnp.array, params),
            penalty=jax.tree.map(_strongly_typed, penalty),
            round=jnp.zeros((), jnp.int32),
            momentum=jax.tree.map(jnp.zeros_like, params) if with_momentum else None,
        ),
        Workers(
            theta=theta,
            scaled_dual=jax.tree.map(jnp.zeros_like, theta) if with_dual else None,
            contribution=jax.tree.map(jnp.copy, theta),
            weight=weight,
            failures=jnp.zeros(num_workers, jnp.int32),
        ),
    )


def _strongly_typed(value: jax.typing.ArrayLike) -> jax.Array:
    """A Python number as the array that it becomes after one round, so that nothing is compiled twice."""
    return jnp.asarray(value, dtype=jnp.result_type(value))
