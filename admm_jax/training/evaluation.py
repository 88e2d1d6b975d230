"""Scores of z: raw rewards of full games, one game per environment, on environments and random numbers of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from admm_jax import envs
from admm_jax.analysis import bootstrap_ci95
from admm_jax.parallel import Stream, stream_key
from admm_jax.rl import distributions, observations
from admm_jax.rl.observations import ObservationMoments
from admm_jax.training.config import TrainConfig
from admm_jax.training.model import Model

LONGEST_GAME = 27_000
"""Agent steps after which a game is given up: the limit of Atari games (30 minutes of play at 60 frames/s)."""


class Scores(NamedTuple):
    """Of one evaluation.

    Attributes:
        mean: of the returns. ci95: bootstrap interval of the mean.
        episodes: games that ended. unfinished: games given up, which do not count.
        mean_length: agent steps per game.
    """

    mean: float
    ci95: tuple[float, float]
    episodes: int
    unfinished: int
    mean_length: float


class Evaluator:
    """Plays the policy of z.

    Args:
        config: the run.
        model: its network.
        greedy: take the most probable action instead of a sampled one.
    """

    def __init__(self, config: TrainConfig, model: Model, greedy: bool) -> None:
        self.config = config
        self.model = model
        self.greedy = greedy
        self._players: dict[int, envs.EpisodePlayer] = {}

    def __call__(
        self, z: np.ndarray, moments: ObservationMoments | None, episodes: int, round_index: int
    ) -> Scores:
        """Scores over one game in each of ``episodes`` environments.

        Args:
            z: parameters [d].
            moments: by which observations are normalised, None if they are not.
            episodes: how many games.
            round_index: part of the seed.
        """
        key = jax.random.fold_in(stream_key(self.config.seed, Stream.EVALUATION), round_index)
        policy = jax.tree.map(jnp.asarray, (z, moments))
        played = self._player(episodes).play(policy, key, LONGEST_GAME)
        returns = played.returns[played.finished]
        return Scores(
            mean=float(returns.mean()) if returns.size else float("nan"),
            ci95=bootstrap_ci95(returns) if returns.size else (float("nan"), float("nan")),
            episodes=int(returns.size),
            unfinished=int((~played.finished).sum()),
            mean_length=float(played.lengths.mean()),
        )

    def _player(self, episodes: int) -> envs.EpisodePlayer:
        # One compiled player per number of games; an EnvPool starts new games of the same stream on each reset.
        if episodes not in self._players:
            environment = make_environment(self.config, episodes, Stream.EVALUATION + len(self._players))
            self._players[episodes] = envs.EpisodePlayer(environment, self._act)
        return self._players[episodes]

    def _act(self, policy: tuple[Any, Any], observation: jax.Array, key: jax.Array) -> jax.Array:
        z, moments = policy
        if moments is not None:
            observation = observations.normalized(observation, moments)
        logits, _ = self.model.apply(z, observation)
        if self.greedy:
            return distributions.greedy(logits)
        return distributions.sample(logits, key)


def make_environment(config: TrainConfig, num_envs: int, stream: int, pools: int = 1) -> envs.Environment:
    """``num_envs`` environments of a run, with random numbers of the given stream."""
    return envs.make(
        config.env,
        num_envs=num_envs,
        seed=config.seed,
        stream=int(stream),
        pools=pools,
        frame_size=config.frame_size,
        frame_stack=config.frame_stack,
    )
