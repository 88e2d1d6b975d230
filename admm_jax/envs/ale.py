"""Atari games in the Arcade Learning Environment itself, with preprocessing of our own.

Independent of EnvPool on purpose: other emulator build, other code from the screen to the observation, written from the
description in Mnih et al. 2015 ("Human-level control through deep reinforcement learning", methods) and Machado et al.
2018. A policy trained in EnvPool has to score the same here. It runs on the host, in Python, and is slow.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from admm_jax.errors import InvalidInput, at_least

INSTALL = "pip install ale-py"
FRAME_SKIP, NOOP_MAX = 4, 30
MAX_AGENT_STEPS = 27_000
NOOP, FIRE = 0, 1
SCREEN = (210, 160)


class GameStep(NamedTuple):
    """What one agent step gave.

    Attributes:
        reward: raw, summed over the skipped frames.
        terminated: the game ended. truncated: it was given up after `MAX_AGENT_STEPS`.
    """

    reward: float
    terminated: bool
    truncated: bool


class AleGame:
    """One game: frame skip 4, no sticky actions, the maximum of the last two frames, grey, shrunk, stacked.

    A game starts with 1 to 30 frames of doing nothing, then FIRE where the game has it, as EnvPool's do.

    Args:
        name: EnvPool's or Gym's name without or with version, ``Pong-v5``.
        seed: of the emulator and of the number of idle frames.
        frame_size: height and width of a frame, pixels.
        frame_stack: frames per observation.

    Raises:
        InvalidInput: ale-py is not installed or does not have the game.
    """

    def __init__(self, name: str, seed: int, frame_size: int = 42, frame_stack: int = 4) -> None:
        self._ale, self._actions = _emulator(name, seed)
        self._random = np.random.default_rng(seed)
        self._shrink = tuple(area_weights(length, frame_size) for length in SCREEN)
        self._frames = np.zeros((frame_size, frame_size, frame_stack), np.uint8)
        self._steps = 0

    @property
    def num_actions(self) -> int:
        return len(self._actions)

    @property
    def screen(self) -> np.ndarray:
        """What a player sees, uint8 [210, 160, 3]."""
        return self._ale.getScreenRGB()

    def reset(self) -> np.ndarray:
        """Start a game; returns the first observation, uint8 [size, size, stack]."""
        self._ale.reset_game()
        for _ in range(self._random.integers(1, NOOP_MAX + 1)):
            self._ale.act(self._actions[NOOP])
            if self._ale.game_over():
                self._ale.reset_game()
        if "FIRE" in self._actions[FIRE].name:
            self._ale.act(self._actions[FIRE])
        self._steps = 0
        self._frames[:] = 0
        self._push(self._ale.getScreenGrayscale())
        return self._frames.copy()

    def step(self, action: int) -> tuple[np.ndarray, GameStep]:
        """Hold ``action`` for four frames; the observation [size, size, stack] and what happened."""
        reward, screens = 0.0, []
        for frame in range(FRAME_SKIP):
            reward += self._ale.act(self._actions[action])
            if frame >= FRAME_SKIP - 2:
                screens.append(self._ale.getScreenGrayscale())
            if self._ale.game_over():
                break
        self._push(np.max(screens or [self._ale.getScreenGrayscale()], axis=0))
        self._steps += 1
        return self._frames.copy(), GameStep(reward, self._ale.game_over(), self._steps >= MAX_AGENT_STEPS)

    def _push(self, screen: np.ndarray) -> None:
        rows, columns = self._shrink
        small = rows @ screen.astype(np.float32) @ columns.T
        self._frames = np.concatenate([self._frames[..., 1:], np.round(small).astype(np.uint8)[..., None]], axis=-1)


def area_weights(length: int, size: int) -> np.ndarray:
    """Matrix [size, length] that averages a line of ``length`` pixels over ``size`` equal stretches."""
    edges = np.arange(size + 1) * (length / size)
    left, right = edges[:-1, None], edges[1:, None]
    pixel = np.arange(length)
    overlap = np.clip(np.minimum(right, pixel + 1) - np.maximum(left, pixel), 0, 1)
    return (overlap / (length / size)).astype(np.float32)


def _emulator(name: str, seed: int) -> tuple[Any, list[Any]]:
    at_least("seed", seed, 0)
    try:
        import ale_py
        from ale_py import roms
    except ImportError as error:
        raise InvalidInput("backend", "ale", f"envpool unless ale-py is installed ({INSTALL})") from error
    game = _snake_case(name.split("-")[0])
    rom = roms.get_rom_path(game) if game in roms.get_all_rom_ids() else None
    if rom is None:
        raise InvalidInput("env", name, "a game that ale-py has, such as Pong-v5")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(rom)
    return ale, list(ale.getMinimalActionSet())


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
