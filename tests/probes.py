"""Probe environments: a few states, one property each, every value known in closed form.

An algorithm that gets one wrong names its own fault: no value learned (one step), observation ignored (sign), no
discounting or bootstrapping (two steps), no policy gradient (bandit), policy blind to the observation (match),
a time limit taken for a death (time limit). Each class has ``known(gamma)``, a list of (observation, value, best
action or None where any action is as good).
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import environment, spaces

Known = list[tuple[np.ndarray, float, int | None]]


@struct.dataclass
class ProbeState(environment.EnvState):
    observed: jax.Array
    time: int


@struct.dataclass
class ProbeParams(environment.EnvParams):
    max_steps_in_episode: int = 1000


class Probe(environment.Environment, abc.ABC):
    """One observation of shape [1]; subclasses say how it starts, what a step does, and what is known."""

    actions: ClassVar[int] = 2

    @property
    def default_params(self) -> ProbeParams:
        return ProbeParams()

    @property
    def num_actions(self) -> int:
        return self.actions

    def action_space(self, params: ProbeParams | None = None) -> spaces.Discrete:
        return spaces.Discrete(self.actions)

    def observation_space(self, params: ProbeParams) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (1,), jnp.float32)

    def reset_env(self, key: jax.Array, params: ProbeParams) -> tuple[jax.Array, ProbeState]:
        state = ProbeState(observed=self.first(key), time=0)
        return state.observed[None], state

    def step_env(
        self, key: jax.Array, state: ProbeState, action: jax.Array, params: ProbeParams
    ) -> tuple[jax.Array, ProbeState, jax.Array, jax.Array, dict[str, Any]]:
        observed, reward, terminated = self.outcome(state.observed, action)
        state = ProbeState(observed=jnp.asarray(observed, jnp.float32), time=state.time + 1)
        return state.observed[None], state, jnp.asarray(reward, jnp.float32), jnp.asarray(terminated), {}

    def first(self, key: jax.Array) -> jax.Array:
        """The first observation, float []."""
        return jnp.zeros(())

    @abc.abstractmethod
    def outcome(self, observed: jax.Array, action: jax.Array) -> tuple[Any, Any, Any]:
        """Next observation [], reward [] and whether the episode terminates."""

    @classmethod
    @abc.abstractmethod
    def known(cls, gamma: float) -> Known:
        """(observation [1], value under any optimal policy, best action or None) for every state, discount gamma."""


def _sign(key: jax.Array) -> jax.Array:
    return jax.random.rademacher(key, (), jnp.float32)


def _observation(x: float) -> np.ndarray:
    return np.full(1, x, np.float32)


class OneStep(Probe):
    """Always the same observation, reward 1, and over: V = 1."""

    def outcome(self, observed, action):
        return 0.0, 1.0, True

    @classmethod
    def known(cls, gamma):
        return [(_observation(0), 1.0, None)]


class Sign(Probe):
    """The observation is -1 or 1 at random, the reward equals it: V = observation."""

    def first(self, key):
        return _sign(key)

    def outcome(self, observed, action):
        return observed, observed, True

    @classmethod
    def known(cls, gamma):
        return [(_observation(-1), -1.0, None), (_observation(1), 1.0, None)]


class TwoSteps(Probe):
    """Observation 0, then 1, then over with reward 1: V(0) = gamma, V(1) = 1."""

    def outcome(self, observed, action):
        return 1.0, observed, observed > 0.5

    @classmethod
    def known(cls, gamma):
        return [(_observation(0), gamma, None), (_observation(1), 1.0, None)]


class Bandit(Probe):
    """One step, reward 1 for action 0 and -1 for action 1."""

    def outcome(self, observed, action):
        return 0.0, jnp.where(action == 0, 1.0, -1.0), True

    @classmethod
    def known(cls, gamma):
        return [(_observation(0), 1.0, 0)]


class Match(Probe):
    """One step, observation -1 or 1 at random; action 0 is right for -1, action 1 for 1: reward 1, or -1."""

    def first(self, key):
        return _sign(key)

    def outcome(self, observed, action):
        return observed, jnp.where((action == 1) == (observed > 0), 1.0, -1.0), True

    @classmethod
    def known(cls, gamma):
        return [(_observation(-1), 1.0, 0), (_observation(1), 1.0, 1)]


class TimeLimit(Probe):
    """Reward 1 for ever, observation 0, cut off after 4 steps: V = 1 / (1 - gamma).

    The observation does not tell the time. Taking the cut-off for a death gives V = 1 + (3/4) gamma V instead.
    """

    @property
    def default_params(self) -> ProbeParams:
        return ProbeParams(max_steps_in_episode=4)

    def outcome(self, observed, action):
        return 0.0, 1.0, False

    @classmethod
    def known(cls, gamma):
        return [(_observation(0), 1 / (1 - gamma), None)]


PROBES: dict[str, type[Probe]] = {
    f"Probe{probe.__name__}-test": probe for probe in (OneStep, Sign, TwoSteps, Bandit, Match, TimeLimit)
}
"""Probe classes by their gymnax name."""


def register_probes() -> list[str]:
    """Makes every probe available to ``gymnax.make``; calling it again changes nothing. Returns the names."""
    for name, probe in PROBES.items():
        if name not in gymnax.registered_envs:
            gymnax.register(name, probe)
    return list(PROBES)
