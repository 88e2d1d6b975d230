"""EnvPool's Atari games as a batched ``Environment``: one pool of emulators per device.

The games live in C++ threads, outside JAX: a state only orders the calls. It cannot be saved, and each state
may be stepped once. Two backends give the same numbers: ``xla`` calls the pool from compiled code without
Python (CPU only); ``host`` calls back into Python, on any platform.
"""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from admm_jax.envs.base import EnvSpec, TimeStep
from admm_jax.errors import InvalidInput

BACKENDS = ("auto", "xla", "host")
INSTALL = "pip install envpool"

# One full game is an episode and rewards are the game's own; the rest are EnvPool's defaults, written out
# because a run's record must say what was played.
_ATARI = {
    "frame_skip": 4,
    "noop_max": 30,
    "repeat_action_probability": 0.0,
    "full_action_space": False,
    "use_fire_reset": True,
    "episodic_life": False,
    "reward_clip": False,
    "gray_scale": True,
    "use_inter_area_resize": True,
    "max_episode_steps": 27000,
}


class PoolState(NamedTuple):
    """Orders the calls to the pools; axis 0 is the pools.

    Attributes:
        token: [D, 8] uint8 handle (``xla``) or [D, 1] int32 count of calls (``host``).
        pool_index: [D] int32, which pool this row steps.
    """

    token: jax.Array
    pool_index: jax.Array


class EnvPoolEnvironment:
    """``num_envs`` Atari games in ``pools`` pools.

    Environment k of the whole batch is seeded with ``first_seed(seed, stream) + k``, however many pools there
    are, and ``reset`` and ``step`` ignore their keys. A second ``reset`` starts new games of the same stream;
    call it only when no step is still running.

    Args:
        name: an EnvPool Atari name, ``Pong-v5``.
        num_envs: N, a multiple of ``pools``.
        seed: of the run, at least 0.
        stream: which of the run's independent streams (0 training, 1 evaluation, ...).
        pools: D, one per device.
        frame_size: height and width of a frame in pixels.
        frame_stack: number of last frames in an observation [frame_size, frame_size, frame_stack].
        backend: ``xla``, ``host``, or ``auto``: ``xla`` where it works.
        num_threads: per pool; by default the CPU cores of this process shared out among the pools.

    Raises:
        InvalidInput: a value out of range, ``xla`` where it is unavailable, or EnvPool is not installed.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        seed: int = 0,
        stream: int = 0,
        pools: int = 1,
        frame_size: int = 42,
        frame_stack: int = 4,
        backend: str = "auto",
        num_threads: int | None = None,
    ) -> None:
        _check_arguments(name, num_envs, seed, stream, pools, frame_size, frame_stack, backend)
        envpool = import_envpool(name)
        size = num_envs // pools
        threads = num_threads or _default_threads(pools, size)
        base = first_seed(seed, stream)
        self.num_envs = num_envs
        self._pools = [
            envpool.make(
                name,
                env_type="gymnasium",
                num_envs=size,
                batch_size=size,
                num_threads=threads,
                seed=base + index * size,
                img_height=frame_size,
                img_width=frame_size,
                stack_num=frame_stack,
                **_ATARI,
            )
            for index in range(pools)
        ]
        self.backend, calls = _choose_backend(backend, self._pools)
        if self.backend == "xla":
            self._handles = np.stack([handle for handle, *_ in calls])
            self._branches = [_xla_branch(step) for *_, step in calls]
        self._frames = (frame_stack, frame_size, frame_size)
        self.spec = EnvSpec(
            name=name,
            num_actions=int(self._pools[0].action_space.n),
            observation_shape=(frame_size, frame_size, frame_stack),
            observation_dtype="uint8",
            resumable=False,
            clip_rewards=True,
            options={
                "source": f"envpool {envpool.__version__}",
                "semantics": "as the NoFrameskip-v4 names of Gym: frame skip 4, no sticky actions",
                "backend": self.backend,
                "frame_size": frame_size,
                "frame_stack": frame_stack,
                "first_seed": base,
                "pools": pools,
                "num_threads": threads,
                **_ATARI,
            },
        )

    def reset(self, keys: jax.Array) -> tuple[PoolState, TimeStep]:
        """See ``Environment.reset``; ``keys`` are ignored."""
        del keys
        for pool in self._pools:
            pool.async_reset()
        results = [pool.recv() for pool in self._pools]
        observation, reward, terminated, truncated, elapsed = (
            np.concatenate(parts) for parts in zip(*[_needed(result) for result in results], strict=True)
        )
        count = len(self._pools)
        token = self._handles if self.backend == "xla" else np.zeros((count, 1), np.int32)
        state = PoolState(jnp.array(token), jnp.arange(count, dtype=jnp.int32))
        # jnp.array copies: EnvPool may write into these buffers again.
        fields = map(jnp.array, (observation, reward, terminated, truncated, elapsed))
        return state, _time_step(*fields)

    def step(self, state: PoolState, action: jax.Array, keys: jax.Array) -> tuple[PoolState, TimeStep]:
        """See ``Environment.step``; ``keys`` are ignored. Environments of one pool must not be split up."""
        del keys
        rows = state.pool_index.shape[0]
        size = self.num_envs // len(self._pools)
        if action.shape != (rows * size,):
            raise ValueError(f"action must be [{rows * size}] for {rows} pools of {size}, not {action.shape}")
        actions = action.astype(jnp.int32).reshape(rows, size)
        tokens, results = [], []
        for row in range(rows):
            index = state.pool_index[row]
            token, result = _belonging_to(index, self._step_pool(index, state.token[row], actions[row]))
            tokens.append(token)
            results.append(result)
        fields = [jnp.concatenate(parts) for parts in zip(*results, strict=True)]
        return PoolState(jnp.stack(tokens), state.pool_index), _time_step(*fields)

    def _step_pool(self, index, token, action):
        """Step one pool; returns the next token and (observation, reward, terminated, truncated, elapsed)."""
        if self.backend == "host":
            return self._host_step(index, token, action)
        if len(self._branches) == 1:
            return self._branches[0](token, action)
        # The handle is compiled into each pool's call, so the pool is chosen by branch and not by token.
        return jax.lax.switch(index, self._branches, token, action)

    def _host_step(self, index, token, action):
        size = action.shape[0]
        shapes = (
            jax.ShapeDtypeStruct(token.shape, token.dtype),
            (
                jax.ShapeDtypeStruct((size, *self._frames), jnp.uint8),
                jax.ShapeDtypeStruct((size,), jnp.float32),
                jax.ShapeDtypeStruct((size,), jnp.bool_),
                jax.ShapeDtypeStruct((size,), jnp.bool_),
                jax.ShapeDtypeStruct((size,), jnp.int32),
            ),
        )

        def call(index, token, action):
            result = self._pools[int(index)].step(np.asarray(action))
            return np.asarray(token) + np.int32(1), _needed(result)

        # Unordered, because ordered effects do not work on several devices: the token orders the calls.
        return io_callback(call, shapes, index, token, action, ordered=False)


def import_envpool(name: str) -> Any:
    """The EnvPool module.

    Raises:
        InvalidInput: it is not installed; the message has the line that installs it.
    """
    try:
        import envpool
    except ImportError as error:
        raise InvalidInput(
            "env", name, f"gymnax:NAME, jax-pong or jax-pong-pixels unless EnvPool is installed ({INSTALL})"
        ) from error
    return envpool


def atari_names() -> list[str]:
    """Names of EnvPool's Atari games; empty if EnvPool is not installed."""
    try:
        from envpool.registration import registry
    except ImportError:
        return []
    return sorted(name for name, (module, *_) in registry.specs.items() if module == "envpool.atari")


def first_seed(seed: int, stream: int) -> int:
    """Seed of environment 0, in [0, 2^30); nearby runs and streams land far apart."""
    return int(np.random.SeedSequence([seed, stream]).generate_state(1)[0]) >> 2


def _xla_branch(step):
    def branch(token, action):
        token, result = step(token, action)
        return token, _needed(result)

    return branch


def _belonging_to(index, tree):
    """``tree`` as values of the device that holds ``index``.

    A foreign call's results count as equal on all devices of a ``shard_map``, which they are not. A select between a
    value and itself, by a condition that differs by device, says so and compiles to nothing.
    """
    return jax.tree.map(lambda leaf: jnp.where(index >= 0, leaf, leaf), tree)


def _needed(result):
    """(observation [n, frames, height, width], reward, terminated, truncated, elapsed steps) of EnvPool's five."""
    observation, reward, terminated, truncated, info = result
    return observation, reward, terminated, truncated, info["elapsed_step"]


def _time_step(observation, reward, terminated, truncated, elapsed) -> TimeStep:
    """EnvPool's fields as a time step: channels last, and no transition where the step count is 0 (a reset)."""
    return TimeStep(jnp.moveaxis(observation, 1, -1), reward, terminated, truncated, elapsed > 0)


def _choose_backend(backend: str, pools: list[Any]) -> tuple[str, list[Any]]:
    """The backend to use, and each pool's (handle, recv, send, step) if it is ``xla``."""
    if backend == "host" or (backend == "auto" and jax.default_backend() != "cpu"):
        return "host", []
    try:
        return "xla", [pool.xla() for pool in pools]
    except RuntimeError as error:
        if backend == "auto":
            return "host", []
        raise InvalidInput("backend", backend, f"auto or host on this platform ({error})") from error


def _default_threads(pools: int, size: int) -> int:
    """The cores of this process, shared out: more threads than cores, or than games, only add switching."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(size, math.ceil(cores / pools)))


def _check_arguments(name, num_envs, seed, stream, pools, frame_size, frame_stack, backend) -> None:
    for field, value, lowest in (
        ("num_envs", num_envs, 1),
        ("seed", seed, 0),
        ("stream", stream, 0),
        ("pools", pools, 1),
        ("frame_stack", frame_stack, 1),
    ):
        if value < lowest:
            raise InvalidInput(field, value, f"at least {lowest}")
    if num_envs % pools:
        raise InvalidInput("num_envs", num_envs, f"a multiple of the number of pools ({pools})")
    if not 8 <= frame_size <= 160:
        raise InvalidInput("frame_size", frame_size, "from 8 to 160 pixels")
    if backend not in BACKENDS:
        raise InvalidInput("backend", backend, f"one of {', '.join(BACKENDS)}")
    import_envpool(name)
    if name not in atari_names():
        raise InvalidInput("env", name, "one of EnvPool's Atari games, such as Pong-v5")
