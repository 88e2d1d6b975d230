"""Exactly one episode per environment: games that finish first are the short ones and must not count twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from admm_jax.envs.base import Environment
from admm_jax.errors import InvalidInput

Act = Callable[[Any, jax.Array, jax.Array], jax.Array]


class Episodes(NamedTuple):
    """One episode per environment, as NumPy arrays.

    Attributes:
        returns: [N] float32, sum of raw rewards.
        lengths: [N] int32, transitions.
        finished: [N] bool, false where the step limit cut the episode off: such a return is no score.
    """

    returns: np.ndarray
    lengths: np.ndarray
    finished: np.ndarray


class EpisodePlayer:
    """Plays a policy for one episode in each environment.

    Compiles once, whatever the parameters, and looks at the result on the host once per ``chunk`` steps.

    Args:
        env: all its environments are played on the default device.
        act: ``act(params, observation [N, ...], key) -> actions [N]``, traceable.
        chunk: steps per compiled call.
    """

    def __init__(self, env: Environment, act: Act, chunk: int = 32) -> None:
        if chunk < 1:
            raise InvalidInput("chunk", chunk, "at least 1")
        self._env, self._act, self._chunk = env, act, chunk
        # The environment's state is not donated: a caller may hold on to what reset returned.
        self._run_chunk = jax.jit(self._run_chunk_traceable)

    def play(self, params: Any, key: jax.Array, max_steps: int) -> Episodes:
        """Play until every environment has finished one episode, or for ``max_steps`` transitions each.

        Args:
            params: handed to ``act``.
            key: a typed PRNG key, for the environments and the policy.
            max_steps: at least 1.
        """
        if max_steps < 1:
            raise InvalidInput("max_steps", max_steps, "at least 1")
        count = self._env.num_envs
        key, reset_key = jax.random.split(key)
        state, time_step = self._env.reset(jax.random.split(reset_key, count))
        tally = Episodes(jnp.zeros(count, jnp.float32), jnp.zeros(count, jnp.int32), jnp.zeros(count, bool))
        carry = (state, time_step.observation, tally)
        for start in range(0, max_steps, self._chunk):
            carry = self._run_chunk(params, carry, jax.random.fold_in(key, start), max_steps)
            if np.asarray(carry[-1].finished).all():
                break
        return Episodes(*map(np.asarray, carry[-1]))

    def _run_chunk_traceable(self, params, carry, key, max_steps):
        def one_step(carry, key):
            state, observation, tally = carry
            act_key, step_key = jax.random.split(key)
            action = self._act(params, observation, act_key)
            state, now = self._env.step(state, action, jax.random.split(step_key, self._env.num_envs))
            counts = now.valid & ~tally.finished & (tally.lengths < max_steps)
            tally = Episodes(
                returns=tally.returns + jnp.where(counts, now.reward, 0.0),
                lengths=tally.lengths + counts,
                finished=tally.finished | (counts & (now.terminated | now.truncated)),
            )
            return (state, now.observation, tally), None

        return jax.lax.scan(one_step, carry, jax.random.split(key, self._chunk))[0]
