"""The mathematics of agreement on any pytree. Knows no reinforcement learning, no environment, no device."""

from admm_jax.consensus.admm import ADMM
from admm_jax.consensus.asynchronous import A3C, STALENESS_EDGES, Clients, Server, TickReport
from admm_jax.consensus.federated import FedAvg, FedProx
from admm_jax.consensus.local_solver import local_step, pull_strength
from admm_jax.consensus.membership import forget_duals, join, recentre, remove
from admm_jax.consensus.outer import EASGD, DiLoCo
from admm_jax.consensus.reduction import LocalReduction, Reduction, weighted_mean
from admm_jax.consensus.regularizer import Regularizer
from admm_jax.consensus.rule import MeanExchange, Rule
from admm_jax.consensus.state import ConsensusState, Residuals, Shared, Workers
from admm_jax.consensus.synchronous import GradientAveraging

__all__ = [
    "A3C",
    "ADMM",
    "EASGD",
    "STALENESS_EDGES",
    "Clients",
    "ConsensusState",
    "DiLoCo",
    "FedAvg",
    "FedProx",
    "GradientAveraging",
    "LocalReduction",
    "MeanExchange",
    "Reduction",
    "Regularizer",
    "Residuals",
    "Rule",
    "Server",
    "Shared",
    "TickReport",
    "Workers",
    "forget_duals",
    "join",
    "local_step",
    "pull_strength",
    "recentre",
    "remove",
    "weighted_mean",
]
