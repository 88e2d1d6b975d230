"""In what the workers of a run differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from admm_jax.envs import Deviations, parameters
from admm_jax.envs.heterogeneity import deviations, explicit
from admm_jax.errors import InvalidInput

if TYPE_CHECKING:
    from admm_jax.training.config import TrainConfig

DEFAULT_SPREAD = 1.0


def of_workers(config: TrainConfig) -> Deviations | None:
    """Deviations [W] of a run's workers, None if they are all alike.

    Raises:
        InvalidInput: settings that do not fit each other or the environment.
    """
    if config.worker_params is not None:
        if config.heterogeneity != "none":
            raise InvalidInput("worker_params", config.worker_params, "left out with heterogeneity")
        known = parameters(config.env)
        if not known:
            raise InvalidInput("worker_params", config.worker_params, f"left out with {config.env}")
        return explicit(json.loads(config.worker_params), known, config.workers)
    if config.heterogeneity == "none":
        if config.spread is not None:
            raise InvalidInput("spread", config.spread, "left out without heterogeneity")
        return None
    if config.family == "atari":
        raise InvalidInput("heterogeneity", config.heterogeneity, f"none with {config.env}, whose games are all alike")
    if config.heterogeneity == "reward_scale" and config.clip_rewards:
        raise InvalidInput("heterogeneity", config.heterogeneity, "used without clip_rewards, which undoes scales")
    spread = DEFAULT_SPREAD if config.spread is None else config.spread
    return deviations(config.heterogeneity, config.env, spread, config.workers)


def as_json(text: str) -> str:
    """Parameters given as JSON, or as the name of a file that holds it, as JSON.

    Raises:
        InvalidInput: it is neither, or no object.
    """
    allowed = 'JSON like {"length": [0.4, 0.6]}, or the name of a file that holds it'
    try:
        content = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InvalidInput("worker_params", text, allowed) from error
    if not isinstance(content, dict) or not content:
        raise InvalidInput("worker_params", text, allowed)
    return json.dumps(content)
