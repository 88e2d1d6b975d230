"""What an algorithm sends, by closed formula: numbers, bytes, messages and latencies, on three topologies.

Counted are the numbers that the algorithm itself exchanges, as float32. Numbers that are only for looking at (residual
norms, returns, losses: about fifty per round) are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

BYTES_PER_NUMBER = 4

Topology = Literal["server", "ring", "all_to_all"]
TOPOLOGIES: tuple[Topology, ...] = ("server", "ring", "all_to_all")


class Traffic(NamedTuple):
    """What crosses the network; numbers add up over exchanges.

    Attributes:
        up, down: bytes that one worker sends and receives (the mean over workers; on a server a worker's own link).
        total: bytes over all links together, each transfer counted once.
        messages: transfers over all links.
        hops: transfers that have to wait for one another; each costs a latency.
    """

    up: float
    down: float
    total: float
    messages: int
    hops: int

    def __add__(self, other: Traffic) -> Traffic:  # type: ignore[override]
        return Traffic(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def __mul__(self, times: int) -> Traffic:  # type: ignore[override]
        return Traffic(*(mine * times for mine in self))


NOTHING = Traffic(0, 0, 0, 0, 0)


def mean_of(numbers: int, workers: int, topology: Topology) -> Traffic:
    """Traffic until all of W workers know the mean of their n ``numbers``.

    server: each sends n and receives n; 2 W n in all, O(W).
    ring: all-reduce in 2 (W - 1) steps of n / W (Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for
        clusters of workstations", section 2): each sends and receives 2 n (W - 1) / W.
    all_to_all: each sends its n to W - 1 others; W (W - 1) n in all, O(W^2), in one step.

    One worker sends nothing on a ring and to others, but still talks to a server.
    """
    size = BYTES_PER_NUMBER * numbers
    if topology == "server":
        return Traffic(size, size, 2 * workers * size, 2 * workers, 2)
    if workers == 1:
        return NOTHING
    if topology == "ring":
        steps = 2 * (workers - 1)
        share = steps * size / workers
        return Traffic(share, share, workers * share, workers * steps, steps)
    others = workers - 1
    return Traffic(others * size, others * size, workers * others * size, workers * others, 1)


@dataclass(frozen=True)
class Ledger:
    """What the workers of a run tell each other.

    Attributes:
        workers: W.
        parameters: d.
        steps_per_round: K, local optimiser steps.
        averages_gradients: whether every optimiser step averages d numbers as well.
        share_moment_every: rounds between averages of the second moment (d more numbers), 0 for never.
        pushes_per_round: 1 where workers meet once; with a server that takes updates as they come, how many a worker
            sends.
        fetch_every: pushes between two fetches of the parameters from such a server; 0 where workers meet.
        scalars_per_round: further numbers, such as three per rollout for advantages normalised over all workers.
        observation_size: numbers in an observation, if its moments are merged (a count and two sums), else None.
    """

    workers: int
    parameters: int
    steps_per_round: int
    averages_gradients: bool = False
    share_moment_every: int = 0
    pushes_per_round: int = 1
    fetch_every: int = 0
    scalars_per_round: int = 0
    observation_size: int | None = None

    @property
    def moments(self) -> int:
        """Numbers about observations per round."""
        return 0 if self.observation_size is None else 1 + 2 * self.observation_size

    def exchanged(self, round_index: int) -> list[int]:
        """Sizes of the means that are formed in a round (counted from 0), in numbers and in order."""
        every = self.share_moment_every
        shares = self.parameters if every and (round_index + 1) % every == 0 else 0
        gradients = [self.parameters] * self.steps_per_round if self.averages_gradients else []
        last = self.moments + self.scalars_per_round
        return [*gradients, (0 if self.fetch_every else self.parameters) + shares + last]

    def uplink_bytes(self, round_index: int) -> int:
        """Bytes that one worker sends to a server in a round, counted from 0."""
        pushed = self.pushes_per_round * self.parameters if self.fetch_every else 0
        return BYTES_PER_NUMBER * (sum(self.exchanged(round_index)) + pushed)

    def traffic(self, rounds: int, topology: Topology = "server") -> Traffic:
        """Everything that the first ``rounds`` rounds send.

        Raises:
            ValueError: workers push to a server, and another topology is asked for.
        """
        if self.fetch_every and topology != "server":
            raise ValueError(f"pushes need a server, not a {topology}")
        period = max(self.share_moment_every, 1)
        each = [self._round(index, topology) for index in range(period)]
        total = NOTHING
        for index, one in enumerate(each):
            total = total + one * len(range(index, rounds, period))
        return total + self._pushes(rounds)

    def _round(self, index: int, topology: Topology) -> Traffic:
        total = NOTHING
        for numbers in self.exchanged(index):
            if numbers:
                total = total + mean_of(numbers, self.workers, topology)
        return total

    def _pushes(self, rounds: int) -> Traffic:
        if not self.fetch_every:
            return NOTHING
        size = BYTES_PER_NUMBER * self.parameters
        pushes = rounds * self.pushes_per_round
        fetches = pushes // self.fetch_every
        both = pushes + fetches
        return Traffic(pushes * size, fetches * size, self.workers * both * size, self.workers * both, both)
