"""One batched environment interface, with the same reset convention for every source.

Axes: ``N`` is the whole batch of environments over all devices, ``n = N / D`` the shard that one of ``D``
devices steps. Every leaf of a state has a leading axis that ``D`` divides, so a state is sharded over devices
along axis 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax

State = Any


class TimeStep(NamedTuple):
    """What a batch of environments returned.

    On the step that ends an episode ``observation`` is the episode's last one (bootstrap a truncation from it).
    The call after that ignores the action, starts the next episode and is no transition: reward 0,
    ``terminated`` and ``truncated`` false, ``valid`` false, ``observation`` the first of the new episode.
    The time step of ``Environment.reset`` is such a one too.

    Attributes:
        observation: [N, *observation_shape], what the policy acts on next.
        reward: [N] float32, raw (never clipped or scaled).
        terminated: [N] bool, the task itself ended: the value of what follows is 0.
        truncated: [N] bool, a time limit ended the episode. Both may be true.
        valid: [N] bool, whether the call was a transition.
        reward_scale: [N] float32, factor by which learning sees the reward; None for 1.
    """

    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    valid: jax.Array
    reward_scale: jax.Array | None = None


@dataclass(frozen=True)
class EnvSpec:
    """What is fixed about an environment.

    Attributes:
        name: as the user spells it (``Pong-v5``, ``gymnax:CartPole-v1``).
        num_actions: actions are the int32 numbers from 0 to ``num_actions - 1``.
        observation_shape: of one environment; images have their channels last.
        observation_dtype: a NumPy dtype name; ``uint8`` images range from 0 to 255.
        resumable: whether a saved state continues exactly where it was saved.
        clip_rewards: whether training conventionally uses the sign of the reward.
        options: resolved options, JSON-able, for the record of a run.
    """

    name: str
    num_actions: int
    observation_shape: tuple[int, ...]
    observation_dtype: str
    resumable: bool
    clip_rewards: bool
    options: dict[str, Any] = field(default_factory=dict, hash=False)


@runtime_checkable
class Environment(Protocol):
    """A batch of ``num_envs`` environments with discrete actions."""

    spec: EnvSpec
    num_envs: int

    def reset(self, keys: jax.Array) -> tuple[State, TimeStep]:
        """Start every environment anew; a host-level call over the whole batch, not traceable.

        Args:
            keys: [N] typed PRNG keys.
        """
        ...

    def step(self, state: State, action: jax.Array, keys: jax.Array) -> tuple[State, TimeStep]:
        """Advance the local shard; traceable inside ``jit``, ``scan`` and ``shard_map``.

        Args:
            state: from ``reset`` or the last ``step``; each state may be used once.
            action: [n] int32.
            keys: [n] typed PRNG keys.
        """
        ...
