"""Scores of z: raw rewards of full games, one game per environment, on environments and random numbers of their own."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from admm_jax import envs
from admm_jax.analysis import bootstrap_ci95
from admm_jax.envs.ale import AleGame
from admm_jax.errors import InvalidInput
from admm_jax.parallel import Stream, stream_key
from admm_jax.training import heterogeneity
from admm_jax.training.config import TrainConfig
from admm_jax.training.model import Model
from admm_jax.training.policy import Policy, Weights, actor, step_seed

LONGEST_GAME = 27_000
"""Agent steps after which a game is given up: the limit of Atari games (30 minutes of play at 60 frames/s)."""


class Scores(NamedTuple):
    """Of one evaluation.

    Attributes:
        mean: of the returns. ci95: bootstrap interval of the mean.
        episodes: games that ended. unfinished: games given up, which do not count.
        mean_length: agent steps per game.
        returns: raw, of each game that ended.
        by_worker: mean on each worker's environments, [W]; None where these are all alike.
    """

    mean: float
    ci95: tuple[float, float]
    episodes: int
    unfinished: int
    mean_length: float
    returns: list[float]
    by_worker: list[float] | None = None

    @property
    def worst_worker(self) -> int | None:
        """Number of the worker on whose environments the score is lowest."""
        return None if self.by_worker is None else int(np.nanargmin([*self.by_worker, np.inf]))

    @property
    def worst_worker_mean(self) -> float:
        """Score there; the mean where environments are all alike."""
        return self.mean if self.by_worker is None else self.by_worker[self.worst_worker]

    @property
    def worker_record(self) -> dict:
        """What to record about workers whose environments differ; empty where they are all alike."""
        if self.by_worker is None:
            return {}
        return {
            "eval_return_by_worker": self.by_worker,
            "eval_return_worst_worker": self.worst_worker_mean,
            "worst_worker": self.worst_worker,
        }

    def __str__(self) -> str:
        text = f"{self.mean:.2f} over {self.episodes} games (95 % CI {self.ci95[0]:.2f} to {self.ci95[1]:.2f})"
        if self.by_worker is not None:
            text += f", worst worker {self.worst_worker}: {self.worst_worker_mean:.2f}"
        return text

    @classmethod
    def of(cls, games: envs.Episodes, workers: int | None = None) -> Scores:
        """Scores of games, each the only one of its environment; ``workers`` if the environments are theirs."""
        returns = games.returns[games.finished]
        return cls(
            mean=float(returns.mean()) if returns.size else float("nan"),
            ci95=bootstrap_ci95(returns) if returns.size else (float("nan"), float("nan")),
            episodes=int(returns.size),
            unfinished=int((~games.finished).sum()),
            mean_length=float(games.lengths.mean()),
            returns=returns.tolist(),
            by_worker=None if workers is None else _means_by_worker(games, workers),
        )


def _means_by_worker(games: envs.Episodes, workers: int) -> list[float]:
    returns = np.where(games.finished, games.returns, np.nan).reshape(workers, -1)
    return [float(np.nanmean(row)) if np.isfinite(row).any() else float("nan") for row in returns]


class Evaluator:
    """Plays the policy of z; on every worker's environments, where these differ.

    Args:
        config: the run; its seed is that of the games.
        model: its network.
        greedy: take the most probable action instead of a sampled one.
    """

    def __init__(self, config: TrainConfig, model: Model, greedy: bool) -> None:
        self.config = config
        self._act = actor(model, greedy)
        self._differ = heterogeneity.of_workers(config) is not None
        self._players: dict[int, envs.EpisodePlayer] = {}

    def __call__(self, weights: Weights, episodes: int, round_index: int, seed: int | None = None) -> Scores:
        """Scores of one game in each of ``episodes`` environments, or as many of each worker where these differ.

        Args:
            weights: the policy.
            episodes: games (of each worker, where workers differ).
            round_index: part of the seed.
            seed: of the games, on environments written in JAX; that of the config if None.
        """
        base = stream_key(self.config.seed if seed is None else seed, Stream.EVALUATION)
        key = jax.random.fold_in(base, round_index)
        games = self._player(episodes).play(weights, key, LONGEST_GAME)
        return Scores.of(games, self.config.workers if self._differ else None)

    def _player(self, episodes: int) -> envs.EpisodePlayer:
        # One compiled player per number of games; an EnvPool starts new games of the same stream on each reset.
        if episodes not in self._players:
            stream = Stream.EVALUATION + len(self._players)
            if self._differ:
                environment = worker_environments(self.config, episodes, stream)
            else:
                environment = make_environment(self.config, episodes, stream)
            self._players[episodes] = envs.EpisodePlayer(environment, self._act)
        return self._players[episodes]


def play_in_ale(policy: Policy, episodes: int, *, greedy: bool = False, seed: int = 0) -> Scores:
    """Scores in the Arcade Learning Environment, through code that shares nothing with the training environment.

    Args:
        policy: of an Atari game.
        episodes: how many games, each with a seed of its own.
        greedy: take the most probable action instead of a sampled one.
        seed: of the games and of the sampling.

    Raises:
        InvalidInput: it is no Atari game, or ale-py is missing.
    """
    config = policy.config
    if config.family != "atari":
        raise InvalidInput("backend", "ale", f"left out with {config.env}, which is no Atari game")
    seeds = np.random.SeedSequence([seed, Stream.EVALUATION]).generate_state(episodes) >> 1
    games = [AleGame(config.env, int(each), config.frame_size, config.frame_stack) for each in seeds]
    observation = np.stack([game.reset() for game in games])
    returns, lengths = np.zeros(episodes, np.float32), np.zeros(episodes, np.int32)
    finished, running = np.zeros(episodes, bool), np.ones(episodes, bool)
    step = 0
    while running.any():
        actions = policy(observation, greedy=greedy, seed=step_seed(seed, step))
        for index in np.flatnonzero(running):
            observation[index], outcome = games[index].step(int(actions[index]))
            returns[index] += outcome.reward
            lengths[index] += 1
            finished[index] = outcome.terminated
            running[index] = not (outcome.terminated or outcome.truncated)
        step += 1
    return Scores.of(envs.Episodes(returns, lengths, finished))


def worker_environments(config: TrainConfig, per_worker: int, stream: int, pools: int = 1) -> envs.Environment:
    """``per_worker`` environments of each worker, in the order of workers, as they differ."""
    own = heterogeneity.of_workers(config)
    deviations = None if own is None else own.repeated(per_worker)
    return make_environment(config, config.workers * per_worker, stream, pools, deviations)


def make_environment(
    config: TrainConfig, num_envs: int, stream: int, pools: int = 1, deviations: envs.Deviations | None = None
) -> envs.Environment:
    """``num_envs`` environments of a run, with random numbers of the given stream; nobody's in particular unless
    ``deviations`` say whose."""
    return envs.make(
        config.env,
        num_envs=num_envs,
        seed=config.seed,
        stream=int(stream),
        pools=pools,
        frame_size=config.frame_size,
        frame_stack=config.frame_stack,
        deviations=deviations,
    )
