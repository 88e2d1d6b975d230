"""The policy of z, to be taken away: parameters, observation statistics, and how actions come from them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from admm_jax.envs import EnvSpec
from admm_jax.errors import InvalidInput
from admm_jax.rl import distributions, observations
from admm_jax.rl.observations import ObservationMoments
from admm_jax.training.config import TrainConfig
from admm_jax.training.model import Model, make_model
from admm_jax.training.run_folder import read_config

FILE = "policy.npz"


class Weights(NamedTuple):
    """What a policy has learned.

    Attributes:
        z: parameters, [d].
        moments: by which it normalises observations, None if it does not.
    """

    z: jax.Array
    moments: ObservationMoments | None

    def save(self, folder: Path) -> None:
        """Write ``policy.npz``, whole or not at all."""
        arrays = {"z": np.asarray(self.z)}
        if self.moments is not None:
            arrays |= {name: np.asarray(value) for name, value in self.moments._asdict().items()}
        partial = folder / f".{FILE}.partial"
        with partial.open("wb") as file:
            np.savez(file, **arrays)
        os.replace(partial, folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> Weights:
        """The inverse of `save`.

        Raises:
            InvalidInput: there is no such file, or it is damaged.
        """
        try:
            with np.load(folder / FILE, allow_pickle=False) as file:
                arrays = {name: jnp.asarray(file[name]) for name in file.files}
            z = arrays.pop("z")
        except FileNotFoundError as error:
            raise InvalidInput("run", str(folder), f"the folder of a run that has saved a {FILE}") from error
        except (OSError, ValueError, KeyError) as error:
            raise InvalidInput("run", str(folder), f"the folder of a run with an intact {FILE} ({error})") from error
        return cls(z, ObservationMoments(**arrays) if arrays else None)


def evaluate_network(model: Model, weights: Weights, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Raw observations [B, *obs] -> (logits [B, A], value [B]); traceable."""
    if weights.moments is not None:
        observation = observations.normalized(observation, weights.moments)
    return model.apply(weights.z, observation)


def actor(model: Model, greedy: bool) -> Callable[[Weights, jax.Array, jax.Array], jax.Array]:
    """(weights, raw observation [B, *obs], key) -> actions int32 [B]: the most probable ones, or sampled; traceable."""

    def act(weights: Weights, observation: jax.Array, key: jax.Array) -> jax.Array:
        logits, _ = evaluate_network(model, weights, observation)
        return distributions.greedy(logits) if greedy else distributions.sample(logits, key)

    return act


def step_seed(seed: int, step: int) -> int:
    """A seed of its own for the actions of every step of a game."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1)[0])


class Policy:
    """Actions for batches of raw observations, as the environment gives them.

    Args:
        config: of the run.
        spec: of its environment.
        weights: what it learned.

    Raises:
        InvalidInput: the weights are not those of such a network.
    """

    def __init__(self, config: TrainConfig, spec: EnvSpec, weights: Weights) -> None:
        self.config, self.spec, self.weights = config, spec, weights
        self.model, _ = make_model(config, spec, jax.random.key(0))
        if weights.z.shape != (self.model.size,):
            raise InvalidInput("run", weights.z.shape, f"parameters of shape ({self.model.size},), as in its config")
        self._act = {greedy: jax.jit(actor(self.model, greedy)) for greedy in (False, True)}
        self._network = jax.jit(lambda weights, observation: evaluate_network(self.model, weights, observation))

    def __call__(self, observation: Any, *, greedy: bool = False, seed: int = 0) -> np.ndarray:
        """Actions int32 [B].

        Args:
            observation: [B, *spec.observation_shape], raw.
            greedy: take the most probable action; otherwise sample, the same actions for the same ``seed``.
            seed: of the sampling; use another one for every step of a game.

        Raises:
            InvalidInput: observations of another shape.
        """
        return np.asarray(self._act[greedy](self.weights, self._checked(observation), jax.random.key(seed)))

    def logits_and_value(self, observation: Any) -> tuple[np.ndarray, np.ndarray]:
        """Logits [B, A] of the actions and value [B], unit of the (clipped) reward.

        Raises:
            InvalidInput: observations of another shape.
        """
        logits, value = self._network(self.weights, self._checked(observation))
        return np.asarray(logits), np.asarray(value)

    def _checked(self, observation: Any) -> jax.Array:
        observation = jnp.asarray(observation, self.spec.observation_dtype)
        if observation.shape[1:] != self.spec.observation_shape or observation.ndim == 0:
            shape = ", ".join(map(str, self.spec.observation_shape))
            raise InvalidInput("observation", observation.shape, f"a batch of shape (B, {shape})")
        return observation


def load_policy(run_dir: str | os.PathLike[str]) -> Policy:
    """The policy that a run saved last.

    Args:
        run_dir: a run's folder; ``config.json`` and ``policy.npz`` of it are enough.

    Raises:
        InvalidInput: there is none, or it cannot be read.
    """
    folder = Path(run_dir)
    record = read_config(folder)
    try:
        config = TrainConfig.from_json(record["train"])
        environment = record["environment"]
        spec = EnvSpec(**environment | {"observation_shape": tuple(environment["observation_shape"])})
    except (KeyError, TypeError) as error:
        raise InvalidInput("run", str(folder), f"the folder of a run of this version ({error})") from error
    return Policy(config, spec, Weights.load(folder))
