"""The actor-critic, and its parameters as a tree and as one flat vector.

Workers agree on flat vectors: one collective, short rules. They learn on trees: cutting up a vector and gluing
gradients together again at every optimiser step costs half as much as the step itself (on CPU, 500,000 parameters).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.flatten_util import ravel_pytree

from admm_jax.envs import EnvSpec
from admm_jax.rl.networks import Network, init_parameters, make_network
from admm_jax.training.config import TrainConfig
from admm_jax.training.rules import spelled_out


class Model(NamedTuple):
    """A network and the shape of its parameters.

    Attributes:
        network: flax module, (tree, observation [B, *obs]) -> (logits [B, A], value [B]).
        unravel: [d] -> the network's tree.
        size: d.
    """

    network: Network
    unravel: Callable[[jax.Array], Any]
    size: int

    @staticmethod
    def ravel(tree: Any) -> jax.Array:
        """The network's tree -> [d]."""
        return ravel_pytree(tree)[0]

    def apply(self, theta: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        """theta [d], observation [B, *obs] -> (logits [B, A], value [B])."""
        return self.network.apply(self.unravel(theta), observation)


def make_model(config: TrainConfig, spec: EnvSpec, key: jax.Array) -> tuple[Model, jax.Array]:
    """The model of a run on an environment, and its first parameters [d].

    Raises:
        InvalidInput: the network cannot take the environment's observations.
    """
    config = spelled_out(config)
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
