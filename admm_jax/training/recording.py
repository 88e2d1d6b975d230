"""A game of a policy, to look at."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from PIL import Image

from admm_jax.envs.ale import AleGame
from admm_jax.errors import InvalidInput
from admm_jax.parallel import Stream
from admm_jax.training.evaluation import make_environment
from admm_jax.training.policy import Policy, step_seed

FRAMES_PER_SECOND = 15
"""One agent step is four frames of the game, at 60 frames per second."""
LONGEST_RECORDING = 2_500
"""Agent steps: about three minutes of play and a few megabytes."""


def can_record(policy: Policy) -> bool:
    """Whether the policy plays on images."""
    return policy.config.family in ("atari", "jax-pong-pixels")


def record_game(
    policy: Policy, path: Path, *, greedy: bool = False, seed: int = 0, max_steps: int = LONGEST_RECORDING
) -> float:
    """Play one game and write it as an animated GIF: Atari in colour, JAX Pong as it is drawn.

    Args:
        policy: the player.
        path: file to write.
        greedy: take the most probable actions instead of sampled ones.
        seed: of the game and of the sampling.
        max_steps: agent steps after which the recording ends.

    Returns:
        The raw return of what was recorded.

    Raises:
        InvalidInput: the policy does not play on images, or ale-py is missing.
    """
    if not can_record(policy):
        raise InvalidInput("gif", str(path), f"left out with {policy.config.env}, which has no pictures")
    play = _play_atari if policy.config.family == "atari" else _play_jax_pong
    frames, score = play(policy, greedy, seed, max_steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=1000 // FRAMES_PER_SECOND, loop=0, optimize=False
    )
    return score


def _play_atari(policy: Policy, greedy: bool, seed: int, max_steps: int) -> tuple[list[Image.Image], float]:
    config = policy.config
    game = AleGame(config.env, seed, config.frame_size, config.frame_stack)
    observation, frames, score = game.reset(), [], 0.0
    for step in range(max_steps):
        frames.append(Image.fromarray(game.screen).quantize(16))
        action = policy(observation[None], greedy=greedy, seed=step_seed(seed, step))[0]
        observation, outcome = game.step(int(action))
        score += outcome.reward
        if outcome.terminated or outcome.truncated:
            break
    frames.append(Image.fromarray(game.screen).quantize(16))
    return frames, score


def _play_jax_pong(policy: Policy, greedy: bool, seed: int, max_steps: int) -> tuple[list[Image.Image], float]:
    environment = make_environment(policy.config, 1, Stream.EVALUATION)
    env_step = jax.jit(environment.step)
    key = jax.random.key(seed)
    state, now = environment.reset(key[None])
    frames, score = [], 0.0
    for step in range(max_steps):
        picture = np.asarray(now.observation[0, ..., -1])
        frames.append(Image.fromarray(picture).resize((168, 168), Image.Resampling.NEAREST))
        action = policy(now.observation, greedy=greedy, seed=step_seed(seed, step))
        state, now = env_step(state, action, jax.random.fold_in(key, step)[None])
        score += float(now.reward[0])
        if bool(now.terminated[0] | now.truncated[0]):
            break
    return frames, score
