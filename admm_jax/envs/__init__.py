"""One batched environment interface; adapters for gymnax and EnvPool; a JAX-native Pong.

What needs gymnax is imported from its own module (``gymnax_adapter``, ``jax_pong``); see ``registry``.
"""

from admm_jax.envs.base import Environment, EnvSpec, TimeStep
from admm_jax.envs.envpool_adapter import EnvPoolEnvironment, PoolState
from admm_jax.envs.episodes import EpisodePlayer, Episodes
from admm_jax.envs.heterogeneity import Deviations
from admm_jax.envs.registry import check_name, family, make, parameters

__all__ = [
    "Deviations",
    "EnvPoolEnvironment",
    "EnvSpec",
    "Environment",
    "EpisodePlayer",
    "Episodes",
    "PoolState",
    "TimeStep",
    "check_name",
    "family",
    "make",
    "parameters",
]
