"""Asynchronous updates of shared parameters (A3C: Mnih et al. 2016, "Asynchronous methods for deep reinforcement
learning", algorithm S3), as a script: who pushes when, and how old what they fetch is, is decided in advance, so that
a run can be repeated bit for bit.

Time passes in ticks. In a tick every worker makes one update from its own copy of the parameters; then the pushes
reach the server one after the other. Each changes the shared parameters at once, so a worker that fetches after its
push finds what those before it in this tick have done, and not what those behind it will.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from admm_jax.consensus.reduction import LocalReduction, Reduction
from admm_jax.consensus.rule import mean_cosine
from admm_jax.consensus.state import ConsensusState
from admm_jax.consensus.trees import PyTree, copies, is_finite, select, squared_norms, sum_over_workers
from admm_jax.errors import InvalidInput, at_least

Push = Literal["gradient", "delta"]
Apply = Callable[[PyTree, PyTree, Any], tuple[PyTree, Any]]
"""The shared optimiser: (parameters, gradient, its state) -> (parameters, state)."""

STALENESS_EDGES = (0, 1, 2, 4, 8, 16, 32, 64)
"""Lower edges of the bins in which staleness is counted; the last bin is open."""


class Server(NamedTuple):
    """The shared parameters and what is kept with them; equal everywhere.

    Attributes:
        z: the shared parameters, leaves [...].
        optimizer: state of the shared optimiser; None where deltas are added as they are.
        version: pushes applied so far, int32 scalar: the stamp of z.
        round: rounds so far (of as many ticks as the caller likes), int32 scalar.
        tick: ticks so far, int32 scalar.
        history: z at the end of earlier ticks, leaves [H, ...]; that of tick t lies in row t mod H.
        stamps: their versions, int32 [H].
    """

    z: PyTree
    optimizer: Any
    version: jax.Array
    round: jax.Array
    tick: jax.Array
    history: PyTree
    stamps: jax.Array


class Clients(NamedTuple):
    """One entry per worker along the leading axis W.

    Attributes:
        theta: the parameters that the worker acts and learns with, leaves [W, ...].
        version: stamp of what it fetched last, int32 [W].
        pushes: since then, int32 [W].
        weight: [W], by which its pushes are scaled.
        failures: ticks running whose push was not finite, int32 [W].
    """

    theta: PyTree
    version: jax.Array
    pushes: jax.Array
    weight: jax.Array
    failures: jax.Array

    @property
    def scaled_dual(self) -> None:
        """There is none."""
        return None


class TickReport(NamedTuple):
    """What happened in one tick; scalars unless said otherwise.

    Attributes:
        applied, rejected, failed: pushes that changed z, were too old, were not finite; int32.
        fetches: int32.
        staleness: sum over the pushes that were applied of the versions that z had moved on since the pusher's last
            fetch, int32.
        histogram: of that, int32 [len(STALENESS_EDGES)].
        cosine: mean cosine between two workers' pushes, each pair weighted by the product of its norms.
    """

    applied: jax.Array
    rejected: jax.Array
    failed: jax.Array
    fetches: jax.Array
    staleness: jax.Array
    histogram: jax.Array
    cosine: jax.Array


@dataclass(frozen=True)
class A3C:
    """A server with shared parameters, and workers that push to it and fetch from it in a scripted order.

    Args:
        push: ``gradient``: workers send gradients, taken at what they last fetched, to a shared optimiser.
            ``delta``: workers go on from their own parameters and send how these changed, which is added to z.
        fetch_every: pushes of a worker between two fetches (1: after every push, as in the paper).
        delays: ticks by which what a worker fetches is behind, one per worker, 0 or more; everyone 0 if empty.
        history: ticks that the server looks back, at least the longest delay.
        max_staleness: a push is rejected if z has moved on by more versions than this since its worker fetched;
            the worker then fetches at once. None rejects nothing.

    Raises:
        InvalidInput: a setting outside its range, or a delay that the history does not reach.
    """

    push: Push = "gradient"
    fetch_every: int = 1
    delays: tuple[int, ...] = ()
    history: int = 0
    max_staleness: int | None = None

    name: ClassVar[str] = "a3c"
    synchronous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.push not in ("gradient", "delta"):
            raise InvalidInput("push", self.push, "one of gradient, delta")
        at_least("fetch_every", self.fetch_every, 1)
        at_least("history", self.history, 0)
        for delay in self.delays:
            at_least("delays", delay, 0)
            if delay > self.history:
                raise InvalidInput("delays", self.delays, f"at most history ({self.history}) each")
        if self.max_staleness is not None:
            at_least("max_staleness", self.max_staleness, 0)

    def init(
        self, params: PyTree, num_workers: int, *, optimizer: Any = None, weights: jax.Array | None = None
    ) -> ConsensusState:
        """State before the first tick: everyone has fetched version 0.

        Args:
            params: where everyone starts, leaves [...].
            num_workers: W.
            optimizer: first state of the shared optimiser.
            weights: [W], 1 each if None.

        Raises:
            InvalidInput: there are delays, but not one per worker.
        """
        if self.delays and len(self.delays) != num_workers:
            raise InvalidInput("delays", self.delays, f"one per worker ({num_workers})")
        rows, none = max(self.history, 1), jnp.zeros(num_workers, jnp.int32)
        # Leaves that are donated together must not share a buffer, hence the copies.
        return ConsensusState(
            Server(
                z=jax.tree.map(jnp.array, params),
                optimizer=optimizer,
                version=jnp.zeros((), jnp.int32),
                round=jnp.zeros((), jnp.int32),
                tick=jnp.zeros((), jnp.int32),
                history=copies(params, rows),
                stamps=jnp.zeros(rows, jnp.int32),
            ),
            Clients(
                theta=copies(params, num_workers),
                version=none,
                pushes=jnp.copy(none),
                weight=jnp.ones(num_workers) if weights is None else jnp.asarray(weights, dtype=float),
                failures=jnp.copy(none),
            ),
        )

    def tick(
        self,
        pushes: PyTree,
        theta: PyTree,
        state: ConsensusState,
        order: jax.Array,
        apply: Apply | None = None,
        healthy: jax.Array | None = None,
        reduction: Reduction | None = None,
    ) -> tuple[ConsensusState, TickReport]:
        """All workers push once, one after the other.

        Args:
            pushes: gradients or deltas, leaves [W, ...]; one that is not finite is left out, and its worker fetches.
            theta: the workers' parameters after their own updates, leaves [W, ...].
            state: before the tick.
            order: the numbers of all workers in the order of their pushes, int32 [W of all devices].
            apply: the shared optimiser; needed for gradients, not used for deltas.
            healthy: bool [W], False for a push that must not be used for a reason that it does not show.
            reduction: where the workers are; all in the caller's hands if None.

        Returns:
            The state after the tick, and what happened.
        """
        server, clients = state
        reduction = LocalReduction() if reduction is None else reduction
        finite = is_finite(pushes) & is_finite(theta)
        if healthy is not None:
            finite &= healthy
        everyone = reduction.gather(
            (pushes, clients.version, clients.pushes, clients.weight, finite, squared_norms(pushes))
        )
        pushes, stamps, counts, weight, finite, squares = everyone
        delays = jnp.asarray(self.delays or [0] * order.shape[0], jnp.int32)
        # A delay of one tick finds z as it was when this tick began.
        rows = (server.tick + 1 - delays) % server.stamps.shape[0]

        def arrive(carry: tuple, worker: jax.Array) -> tuple[tuple, tuple]:
            z, optimizer, version = carry
            staleness = version - stamps[worker]
            fresh = jnp.bool_(True) if self.max_staleness is None else staleness <= self.max_staleness
            accepted = finite[worker] & fresh
            # Masked before use: a gradient that is not finite must not touch the shared optimiser.
            sent = jax.tree.map(
                lambda leaf: jnp.where(accepted, leaf[worker], 0) * weight[worker].astype(leaf.dtype), pushes
            )
            new_z, new_optimizer = self._apply(z, sent, optimizer, apply)
            z, optimizer = jax.tree.map(
                lambda new, old: jnp.where(accepted, new, old), (new_z, new_optimizer), (z, optimizer)
            )
            version = version + accepted
            fetches = ~accepted | (counts[worker] + 1 >= self.fetch_every)
            late = delays[worker] > 0
            found = jax.tree.map(lambda now, past: jnp.where(late, past[rows[worker]], now), z, server.history)
            stamp = jnp.where(late, server.stamps[rows[worker]], version)
            return (z, optimizer, version), (found, stamp, accepted, fetches, staleness)

        (z, optimizer, version), in_order = jax.lax.scan(arrive, (server.z, server.optimizer, server.version), order)
        place = jnp.argsort(order)
        found, stamp, accepted, fetches, staleness = jax.tree.map(lambda leaf: leaf[place], in_order)
        report = self._report(pushes, squares, finite, accepted, fetches, staleness)

        found, stamp, fetches, finite = reduction.own((found, stamp, fetches, finite))
        tick = server.tick + 1
        row = tick % server.stamps.shape[0]
        return (
            ConsensusState(
                Server(
                    z=z,
                    optimizer=optimizer,
                    version=version,
                    round=server.round,
                    tick=tick,
                    history=jax.tree.map(lambda past, now: past.at[row].set(now), server.history, z),
                    stamps=server.stamps.at[row].set(version),
                ),
                Clients(
                    theta=select(fetches, found, theta if self.push == "delta" else clients.theta),
                    version=jnp.where(fetches, stamp, clients.version),
                    pushes=jnp.where(fetches, 0, clients.pushes + 1),
                    weight=clients.weight,
                    failures=jnp.where(finite, 0, clients.failures + 1),
                ),
            ),
            report,
        )

    def _apply(self, z: PyTree, sent: PyTree, optimizer: Any, apply: Apply | None) -> tuple[PyTree, Any]:
        if self.push == "delta":
            return jax.tree.map(lambda a, b: a + b, z, sent), optimizer
        if apply is None:
            raise TypeError("a server that receives gradients needs an optimiser (apply)")
        return apply(z, sent, optimizer)

    def _report(
        self,
        pushes: PyTree,
        squares: jax.Array,
        finite: jax.Array,
        accepted: jax.Array,
        fetches: jax.Array,
        staleness: jax.Array,
    ) -> TickReport:
        edges = jnp.asarray(STALENESS_EDGES)
        bins = jnp.searchsorted(edges, staleness, side="right") - 1
        norms = jnp.sqrt(jnp.where(finite, squares, 0))
        total = sum_over_workers(select(finite, pushes, jax.tree.map(jnp.zeros_like, pushes)))
        return TickReport(
            applied=accepted.sum(dtype=jnp.int32),
            rejected=(finite & ~accepted).sum(dtype=jnp.int32),
            failed=(~finite).sum(dtype=jnp.int32),
            fetches=fetches.sum(dtype=jnp.int32),
            staleness=jnp.where(accepted, staleness, 0).sum(dtype=jnp.int32),
            histogram=jnp.zeros(len(STALENESS_EDGES), jnp.int32).at[bins].add(accepted.astype(jnp.int32)),
            cosine=mean_cosine(total, norms.sum(), jnp.square(norms).sum()),
        )
