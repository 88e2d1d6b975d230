"""Small runs for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from admm_jax import envs
from admm_jax.parallel import Stream, WorkerMesh, stream_key
from admm_jax.training.config import TrainConfig
from admm_jax.training.evaluation import worker_environments
from admm_jax.training.model import Model, make_model
from admm_jax.training.program import initial_state, make_round
from admm_jax.training.state import TrainState


def cartpole(**changes: Any) -> TrainConfig:
    """A CartPole run that compiles fast: 8 workers x 2 environments x 12 steps, 6 local steps."""
    settings: dict[str, Any] = {
        "env": "gymnax:CartPole-v1",
        "workers": 8,
        "envs_per_worker": 2,
        "rollout": 12,
        "local_epochs": 2,
        "minibatches": 3,
        "lr": 2e-3,
        "network": "mlp",
        "hidden": (16,),
        "normalize_observations": False,
        "clip_rewards": False,
        "seed": 5,
    }
    return TrainConfig(**(settings | changes))


@dataclass
class Built:
    """A run ready to step."""

    config: TrainConfig
    mesh: WorkerMesh
    environment: envs.Environment
    model: Model
    params: jax.Array
    state: TrainState
    step: Any

    def rounds(self, count: int) -> list[dict[str, float]]:
        """Run ``count`` rounds; metrics of each."""
        rows = []
        for _ in range(count):
            self.state, metrics = self.step(self.state)
            rows.append({name: float(value) for name, value in metrics.items()})
        return rows

    @property
    def z(self) -> jax.Array:
        return self.state.consensus.shared.z


def build(config: TrainConfig, devices: int = 1) -> Built:
    mesh = WorkerMesh(config.workers, devices)
    environment = worker_environments(config, config.envs_per_worker, Stream.TRAINING, pools=devices)
    model, params = make_model(config, environment.spec, stream_key(config.seed, Stream.INITIALISATION))
    state = initial_state(config, environment, model, params, mesh)
    return Built(config, mesh, environment, model, params, state, make_round(config, environment, model, mesh))
