"""The actor-critic as a function of one flat vector of parameters.

A flat vector makes the exchange one collective and the optimiser one fused loop; networks want a tree. This is the one
place that converts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.flatten_util import ravel_pytree

from admm_jax.envs import EnvSpec
from admm_jax.rl.networks import Network, init_parameters, make_network
from admm_jax.training.config import TrainConfig


class Model(NamedTuple):
    """A network and the shape of its parameters.

    Attributes:
        network: flax module, (tree, observation [B, *obs]) -> (logits [B, A], value [B]).
        unravel: parameters as the network's tree, [d] -> tree.
        size: d.
    """

    network: Network
    unravel: Callable[[jax.Array], Any]
    size: int

    def apply(self, theta: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        """theta [d], observation [B, *obs] -> (logits [B, A], value [B])."""
        return self.network.apply(self.unravel(theta), observation)


def make_model(config: TrainConfig, spec: EnvSpec, key: jax.Array) -> tuple[Model, jax.Array]:
    """The model of a run on an environment, and its first parameters [d].

    Raises:
        InvalidInput: the network cannot take the environment's observations.
    """
    network = make_network(
        config.network,
        spec.num_actions,
        observation_shape=spec.observation_shape,
        channels=config.channels,
        hidden=config.hidden,
    )
    tree = init_parameters(network, key, spec.observation_shape, spec.observation_dtype)
    theta, unravel = ravel_pytree(tree)
    return Model(network, unravel, theta.size), theta
