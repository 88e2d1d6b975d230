"""Environments by name: ``Pong-v5`` (EnvPool's Atari), ``gymnax:NAME``, ``jax-pong``, ``jax-pong-pixels``.

gymnax is imported where it is needed: that takes seconds and starts JAX, which fixes the number of CPU devices.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal

from admm_jax.envs.base import Environment
from admm_jax.envs.envpool_adapter import EnvPoolEnvironment, atari_names, import_envpool
from admm_jax.envs.heterogeneity import Deviations
from admm_jax.errors import InvalidInput, nearest

Family = Literal["atari", "gymnax", "jax-pong", "jax-pong-pixels"]
GYMNAX = "gymnax:"
_OWN: tuple[Family, ...] = ("jax-pong", "jax-pong-pixels")
_KINDS = "an EnvPool Atari game (Pong-v5), gymnax:NAME, jax-pong or jax-pong-pixels"


def make(
    name: str,
    *,
    num_envs: int,
    seed: int = 0,
    stream: int = 0,
    pools: int = 1,
    frame_size: int = 42,
    frame_stack: int = 4,
    backend: str = "auto",
    deviations: Deviations | None = None,
) -> Environment:
    """A batch of ``num_envs`` environments called ``name``.

    Args:
        name: see the module.
        num_envs: N, the whole batch over all devices.
        seed: of the run; only EnvPool needs it here, the others draw from the keys they are given.
        stream: keeps apart the games of one run (0 training, 1 evaluation, ...); EnvPool only.
        pools: number of devices; EnvPool only.
        frame_size: height and width of images in pixels; EnvPool and ``jax-pong-pixels``.
        frame_stack: number of frames in an observation; EnvPool and ``jax-pong-pixels``.
        backend: ``auto``, ``xla`` or ``host``; EnvPool only.
        deviations: in what environments differ, leaves [N]; not for EnvPool.

    Raises:
        InvalidInput: an unknown name (with the nearest ones) or a value out of range, or deviations of emulators.
    """
    kind = family(name)
    if num_envs < 1:
        raise InvalidInput("num_envs", num_envs, "at least 1")
    if kind == "atari":
        if deviations is not None:
            raise InvalidInput("heterogeneity", name, "none with EnvPool, whose games are all alike")
        return EnvPoolEnvironment(
            name,
            num_envs,
            seed=seed,
            stream=stream,
            pools=pools,
            frame_size=frame_size,
            frame_stack=frame_stack,
            backend=backend,
        )
    from admm_jax.envs.gymnax_adapter import GymnaxEnvironment

    env, params = _make_gymnax(name) if kind == "gymnax" else _make_jax_pong(kind, frame_size, frame_stack)
    return GymnaxEnvironment(env, params, num_envs, deviations=deviations, name=name)


def parameters(name: str) -> dict[str, Any]:
    """Parameters that environments of this kind have in common, by field; none for EnvPool.

    Raises:
        InvalidInput: as ``check_name``.
    """
    kind = family(name)
    if kind == "atari":
        return {}
    _, params = _make_gymnax(name) if kind == "gymnax" else _make_jax_pong(kind, 42, 4)
    return {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}


def check_name(name: str) -> None:
    """Refuse an unknown name; constructs and compiles nothing.

    Raises:
        InvalidInput: with the nearest names, or with the line that installs EnvPool.
    """
    family(name)


def family(name: str) -> Family:
    """Where an environment comes from.

    Raises:
        InvalidInput: as ``check_name``.
    """
    if name in _OWN:
        return name
    if name.startswith(GYMNAX):
        if name in _gymnax_names():
            return "gymnax"
        raise _unknown(name, _gymnax_names())
    if re.fullmatch(r"\w+-v\d+", name):
        import_envpool(name)
    atari = atari_names()
    if name in atari:
        return "atari"
    raise _unknown(name, [*_OWN, *atari, *_gymnax_names()])


def _gymnax_names() -> list[str]:
    import gymnax

    return [GYMNAX + name for name in gymnax.registered_envs]


def _unknown(name: str, choices: list[str]) -> InvalidInput:
    # A gymnax name without its prefix is a likely slip: `CartPole-v1`.
    prefixed = [choice for choice in choices if choice == GYMNAX + name]
    close = prefixed or nearest(name, choices)
    hint = f"; nearest: {', '.join(close)}" if close else ""
    return InvalidInput("env", name, _KINDS + hint)


def _make_gymnax(name: str) -> tuple[Any, Any]:
    import gymnax

    try:
        return gymnax.make(name.removeprefix(GYMNAX))
    except OSError as error:  # MNISTBandit downloads its images
        raise InvalidInput(
            "env", name, f"an environment whose data can be read; this one's could not ({error})"
        ) from error


def _make_jax_pong(kind: str, size: int, frames: int) -> tuple[Any, Any]:
    from admm_jax.envs.jax_pong import JaxPong, JaxPongPixels

    env = JaxPong() if kind == "jax-pong" else JaxPongPixels(size=size, frames=frames)
    return env, env.default_params
