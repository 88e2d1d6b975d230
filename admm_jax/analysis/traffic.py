"""What an algorithm sends: bytes from a worker to a parameter server, by closed formula.

Counted are the numbers that the algorithm exchanges, as float32. Scalars for logs (residual norms, returns) are not.
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES_PER_NUMBER = 4


@dataclass(frozen=True)
class Uplink:
    """What one worker sends up per round.

    Args:
        size: d, numbers in a parameter vector.
        averages_gradients: whether a gradient goes up at every local step (synchronous rules).
        steps_per_round: K.
        share_moment_every: rounds between averages of the second moment (d more numbers), 0 for never.
        scalars_per_round: further numbers, such as three per rollout for advantages normalised over all workers.
        pushes_per_round: messages of d numbers: one where workers meet once, one per push to a server.
        observation_size: numbers in an observation, if its moments are merged (a count and two sums), else None.
    """

    size: int
    averages_gradients: bool
    steps_per_round: int
    share_moment_every: int
    scalars_per_round: int = 0
    observation_size: int | None = None
    pushes_per_round: int = 1

    def numbers(self, round_index: int) -> int:
        """Numbers sent in a round, counted from 0."""
        gradients = self.size * self.steps_per_round if self.averages_gradients else 0
        every = self.share_moment_every
        moment = self.size if every and (round_index + 1) % every == 0 else 0
        observations = 0 if self.observation_size is None else 1 + 2 * self.observation_size
        return self.size * self.pushes_per_round + gradients + moment + observations + self.scalars_per_round

    def bytes(self, round_index: int) -> int:
        """Bytes sent in a round, counted from 0."""
        return BYTES_PER_NUMBER * self.numbers(round_index)
