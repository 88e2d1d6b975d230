"""Rules in which the consensus is moved by the workers' mean instead of replaced by it: EASGD and DiLoCo.

Who is absent from an exchange counts as standing at z: it neither pulls nor is pulled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from admm_jax.consensus.rule import MeanExchange
from admm_jax.consensus.state import Shared, Workers
from admm_jax.consensus.trees import PyTree, copies
from admm_jax.errors import finite


@dataclass(frozen=True)
class EASGD(MeanExchange):
    """Elastic averaging (Zhang, Choromanska & LeCun 2015, "Deep learning with elastic averaging SGD", equations 5-6).

        theta_i <- theta_i - beta / W (theta_i - z)
        z       <- z + beta (mean_i theta_i - z)

    Both sides move from the positions before the exchange, by forces that are equal if the weights are (the paper has
    none), and workers go on from their own parameters. beta / W is the paper's alpha.

    Args:
        elasticity: beta, above 0 and at most 1; the paper recommends 0.9.

    Raises:
        InvalidInput: ``elasticity`` outside its range.
    """

    elasticity: float = 0.9
    name: ClassVar[str] = "easgd"
    restart: ClassVar[str] = "worker"

    def __post_init__(self) -> None:
        finite("elasticity", self.elasticity, above=0, high=1)

    def absent(self, workers: Workers, shared: Shared) -> PyTree:
        return copies(shared.z, workers.weight.shape[0])

    def next_z(self, mean: PyTree, shared: Shared, anyone: jax.Array) -> tuple[PyTree, None]:
        return jax.tree.map(lambda z, m: z + self.elasticity * (m - z), shared.z, mean), None

    def kept(self, theta: PyTree, shared: Shared, num_workers: jax.Array) -> PyTree:
        rate = self.elasticity / num_workers
        return jax.tree.map(lambda x, old: x - rate.astype(x.dtype) * (x - old), theta, shared.z)


@dataclass(frozen=True)
class DiLoCo(MeanExchange):
    """Local steps from z, then an outer step of Nesterov momentum on their mean (Douillard et al. 2023, "DiLoCo:
    Distributed low-communication training of language models", algorithm 1).

        delta <- z - mean_i theta_i
        m     <- outer_momentum m + delta
        z     <- z - outer_lr (delta + outer_momentum m)

    With ``outer_lr`` 1 and no momentum it is FedAvg.

    Args:
        outer_lr: above 0; the paper's 0.7.
        outer_momentum: at least 0 and below 1; the paper's 0.9.

    Raises:
        InvalidInput: a setting outside its range.
    """

    outer_lr: float = 0.7
    outer_momentum: float = 0.9
    name: ClassVar[str] = "diloco"
    with_momentum: ClassVar[bool] = True

    def __post_init__(self) -> None:
        finite("outer_lr", self.outer_lr, above=0)
        finite("outer_momentum", self.outer_momentum, low=0, below=1)

    def absent(self, workers: Workers, shared: Shared) -> PyTree:
        return copies(shared.z, workers.weight.shape[0])

    def next_z(self, mean: PyTree, shared: Shared, anyone: jax.Array) -> tuple[PyTree, PyTree]:
        delta = jax.tree.map(lambda z, m: z - m, shared.z, mean)
        momentum = jax.tree.map(lambda m, d: self.outer_momentum * m + d, shared.momentum, delta)
        z = jax.tree.map(lambda z, d, m: z - self.outer_lr * (d + self.outer_momentum * m), shared.z, delta, momentum)
        # Without anyone there is no step: momentum alone must not carry z away.
        return jax.tree.map(lambda new, old: jnp.where(anyone, new, old), (z, momentum), (shared.z, shared.momentum))
