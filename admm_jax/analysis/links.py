"""From traffic to time: how long workers wait for each other and for the network, by model.

A link has a latency and a bandwidth, the same both ways. On a ring and from all to all every worker has a link of its
own; a server has one, which all workers share, and serves them one after the other. Computing and sending do not
overlap. Nothing is lost, and protocols cost nothing: these are bounds that a real network stays above.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from admm_jax.analysis.ledger import BYTES_PER_NUMBER, Topology
from admm_jax.errors import finite


class Link(NamedTuple):
    """A connection.

    Attributes:
        latency: seconds per message.
        bandwidth: bits per second.
    """

    latency: float
    bandwidth: float

    def seconds(self, size: float) -> float:
        """Of one message of ``size`` bytes."""
        return self.latency + self.occupied(size)

    def occupied(self, size: float) -> float:
        """Seconds for which ``size`` bytes keep the link busy."""
        return 8 * size / self.bandwidth


LINKS = {"10 Mb/s": Link(20e-3, 10e6), "1 Gb/s": Link(0.5e-3, 1e9), "100 Gb/s": Link(10e-6, 100e9)}
"""Assumptions: a link over the internet, in a building, and between machines of one rack."""


class Timing(NamedTuple):
    """Of a run.

    Attributes:
        seconds: from start to end.
        waiting_share: of a worker's time that it does not compute, mean over workers.
    """

    seconds: float
    waiting_share: float


def mean_seconds(numbers: int, workers: int, topology: Topology, link: Link) -> float:
    """Seconds until W workers know the mean of their n ``numbers``.

    server: 2 (latency + W n / bandwidth), since all uploads and all downloads pass the server's one link;
    ring: 2 (W - 1) (latency + n / W / bandwidth); all_to_all: latency + (W - 1) n / bandwidth.
    """
    size = BYTES_PER_NUMBER * numbers
    if topology == "server":
        return 2 * (link.latency + link.occupied(workers * size))
    if workers == 1:
        return 0.0
    if topology == "ring":
        return 2 * (workers - 1) * link.seconds(size / workers)
    return link.seconds((workers - 1) * size)


def meeting_rounds(
    exchanged: Sequence[int], compute: Sequence[float], rounds: int, link: Link, topology: Topology = "server"
) -> Timing:
    """Rounds in which everyone waits for everyone.

    Args:
        exchanged: sizes of the means of a round, in numbers.
        compute: seconds that each worker computes in a round, [W]; who is slow lets the others wait.
        rounds: how many.
        link: of every worker, or of the server.
        topology: how means are formed.

    Raises:
        InvalidInput: a worker computes for no time at all.
    """
    for seconds in compute:
        finite("compute", seconds, above=0)
    sending = sum(mean_seconds(numbers, len(compute), topology, link) for numbers in exchanged if numbers)
    each = max(compute) + sending
    return Timing(rounds * each, 1 - float(np.mean(compute)) / each)


def pushing(parameters: int, compute: Sequence[float], pushes: int, fetch_every: int, link: Link) -> Timing:
    """Workers that push to a server whenever they have something, and fetch now and then; an event simulation.

    A worker computes, sends its push and goes on when it has arrived; after every ``fetch_every`` pushes it fetches and
    goes on when the parameters are there. The server's link serves one upload and one download at a time, first come,
    first served.

    Args:
        parameters: d numbers per push and per fetch.
        compute: seconds that each worker computes between two pushes, [W].
        pushes: of each worker.
        fetch_every: pushes between fetches.
        link: of the server.

    Raises:
        InvalidInput: a worker computes for no time at all.
    """
    for seconds in compute:
        finite("compute", seconds, above=0)
    busy = link.occupied(BYTES_PER_NUMBER * parameters)
    free = {"up": 0.0, "down": 0.0}
    done, finished = [0] * len(compute), [0.0] * len(compute)
    queue = [(seconds, worker, "up") for worker, seconds in enumerate(compute)]
    heapq.heapify(queue)
    while queue:
        asked, worker, direction = heapq.heappop(queue)
        free[direction] = max(asked, free[direction]) + busy
        now = free[direction] + link.latency
        if direction == "up":
            done[worker] += 1
            if done[worker] % fetch_every == 0:
                heapq.heappush(queue, (now, worker, "down"))
                continue
        if done[worker] < pushes:
            heapq.heappush(queue, (now + compute[worker], worker, "up"))
        else:
            finished[worker] = now
    shares = [1 - pushes * seconds / end for seconds, end in zip(compute, finished, strict=True)]
    return Timing(max(finished), float(np.mean(shares)))


def undisturbed_share(parameters: int, compute: float, fetch_every: int, link: Link) -> float:
    """Waiting share of a worker that has the server to itself: m (1 + 1/f) / (compute + m (1 + 1/f)), where m is the
    time of a message and f = ``fetch_every``. With more workers it is a lower bound."""
    waits = link.seconds(BYTES_PER_NUMBER * parameters) * (1 + 1 / fetch_every)
    return waits / (compute + waits)
