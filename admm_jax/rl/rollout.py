"""T steps of W x E environments, each worker acting by its own parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from admm_jax.rl import distributions


class Trajectory(NamedTuple):
    """What happened, with leading axes [T, W, E]; the call that resets an environment is a row that is not valid.

    Attributes:
        observation: what the policy acted on, [T, W, E, *obs].
        action: int32. log_prob: of that action, nats. value: V(observation), reward units.
        reward: as the loss sees it (clipped if so configured, and scaled where workers differ in that).
        terminated, truncated, valid: bool.
    """

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    valid: jax.Array


class EpisodeScores(NamedTuple):
    """Raw returns of running and finished episodes, environment by environment; leaves [W, E].

    Attributes:
        running: return so far of the episode in progress. running_length: its steps.
        finished: sum of the returns of the episodes finished since the count was last cleared.
        finished_length: sum of their lengths. count: their number, int32.
    """

    running: jax.Array
    running_length: jax.Array
    finished: jax.Array
    finished_length: jax.Array
    count: jax.Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> EpisodeScores:
        return cls(
            running=jnp.zeros(shape),
            running_length=jnp.zeros(shape, jnp.int32),
            finished=jnp.zeros(shape),
            finished_length=jnp.zeros(shape, jnp.int32),
            count=jnp.zeros(shape, jnp.int32),
        )

    def cleared(self) -> EpisodeScores:
        """The same episodes in progress, nothing finished yet."""
        zeros = EpisodeScores.zeros(self.count.shape)
        return zeros._replace(running=self.running, running_length=self.running_length)

    def after(self, reward: jax.Array, done: jax.Array, valid: jax.Array) -> EpisodeScores:
        """One step later; ``reward`` raw, all [W, E]."""
        running = self.running + jnp.where(valid, reward, 0)
        length = self.running_length + valid
        over = done & valid
        return EpisodeScores(
            running=jnp.where(over, 0, running),
            running_length=jnp.where(over, 0, length),
            finished=self.finished + jnp.where(over, running, 0),
            finished_length=self.finished_length + jnp.where(over, length, 0),
            count=self.count + over,
        )


def rollout(
    act: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    env_step: Callable[[Any, jax.Array, jax.Array], tuple[Any, Any]],
    env_state: Any,
    observation: jax.Array,
    scores: EpisodeScores,
    keys: jax.Array,
    length: int,
    *,
    clip_rewards: bool,
) -> tuple[Any, jax.Array, EpisodeScores, Trajectory]:
    """Act for ``length`` steps.

    Args:
        act: the workers' networks, [W, E, *obs] -> (logits [W, E, A], value [W, E]).
        env_step: (state, action [W E], keys [W E]) -> (state, time step with leading axis W E).
        env_state: of all environments.
        observation: what to act on first, [W, E, *obs].
        scores: episodes in progress.
        keys: one per worker, [W].
        length: T.
        clip_rewards: store the sign of the reward; scores stay raw.

    Returns:
        Environment state, next observation [W, E, *obs], scores, and the trajectory.
    """
    num_workers, num_envs = observation.shape[:2]

    def split(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(num_workers, num_envs, *leaf.shape[1:])

    def step(carry: tuple, time: jax.Array) -> tuple[tuple, Trajectory]:
        env_state, observation, scores = carry
        step_keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time), num_envs + 1))(keys)
        logits, value = act(observation)
        action = jax.vmap(distributions.sample)(logits, step_keys[:, 0])
        env_state, outcome = env_step(env_state, action.reshape(-1), step_keys[:, 1:].reshape(-1))
        reward, terminated, truncated, valid = (
            split(field) for field in (outcome.reward, outcome.terminated, outcome.truncated, outcome.valid)
        )
        learned_from = jnp.sign(reward) if clip_rewards else reward
        if outcome.reward_scale is not None:
            learned_from = learned_from * split(outcome.reward_scale)
        trajectory = Trajectory(
            observation=observation,
            action=action,
            log_prob=distributions.log_prob(logits, action),
            value=value,
            reward=learned_from,
            terminated=terminated,
            truncated=truncated,
            valid=valid,
        )
        scores = scores.after(reward, terminated | truncated, valid)
        return (env_state, split(outcome.observation), scores), trajectory

    (env_state, observation, scores), trajectory = jax.lax.scan(
        step, (env_state, observation, scores), jnp.arange(length)
    )
    return env_state, observation, scores, trajectory
