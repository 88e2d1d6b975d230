"""One batched environment interface; adapters for gymnax and EnvPool; a JAX-native Pong."""

from admm_jax.envs.base import Environment, EnvSpec, TimeStep
from admm_jax.envs.envpool_adapter import EnvPoolEnvironment, PoolState
from admm_jax.envs.episodes import EpisodePlayer, Episodes
from admm_jax.envs.gymnax_adapter import GymnaxEnvironment, GymnaxState
from admm_jax.envs.jax_pong import JaxPong, JaxPongPixels
from admm_jax.envs.registry import check_name, family, make

__all__ = [
    "EnvPoolEnvironment",
    "EnvSpec",
    "Environment",
    "EpisodePlayer",
    "Episodes",
    "GymnaxEnvironment",
    "GymnaxState",
    "JaxPong",
    "JaxPongPixels",
    "PoolState",
    "TimeStep",
    "check_name",
    "family",
    "make",
]
