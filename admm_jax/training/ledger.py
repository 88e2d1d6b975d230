"""What a run's workers tell each other."""

from __future__ import annotations

import math

from admm_jax.analysis.ledger import Ledger
from admm_jax.envs import EnvSpec
from admm_jax.training.config import TrainConfig
from admm_jax.training.rules import spelled_out


def make_ledger(config: TrainConfig, parameters: int, spec: EnvSpec) -> Ledger:
    """The ledger of a run with so many parameters on environments of this kind."""
    config = spelled_out(config)
    return Ledger(
        workers=config.workers,
        parameters=parameters,
        steps_per_round=config.steps_per_round,
        averages_gradients=config.rule == "gradient",
        share_moment_every=config.share_moment_every or 0,
        pushes_per_round=config.updates_per_round,
        fetch_every=config.fetch_every or 0,
        scalars_per_round=3 * config.rollouts_per_round if config.normalize_advantages == "global" else 0,
        observation_size=math.prod(spec.observation_shape) if config.normalize_observations else None,
    )
