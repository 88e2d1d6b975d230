"""Scores of doing nothing (action 0) and of random actions, one full game per environment.

python experiments/baseline_scores.py --env Pong-v5 --episodes 30 --json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from admm_jax import envs
from admm_jax.cli import parse, run
from admm_jax.errors import InvalidInput


@dataclass(frozen=True)
class Config:
    """Scores of the no-op and the random policy."""

    env: str
    """EnvPool Atari game (Pong-v5), gymnax:NAME, jax-pong or jax-pong-pixels."""
    episodes: int = 30
    """Games, one per environment; at least 2."""
    seed: int = 0
    """Seed of the environments and the random actions; at least 0."""
    max_steps: int = 30_000
    """Steps after which a game counts as unfinished; at least 1."""
    json: bool = False
    """Print one JSON object and nothing else."""

    def __post_init__(self) -> None:
        for field, lowest in (("episodes", 2), ("seed", 0), ("max_steps", 1)):
            if getattr(self, field) < lowest:
                raise InvalidInput(field, getattr(self, field), f"at least {lowest}")
        envs.check_name(self.env)


def scores(config: Config) -> dict[str, object]:
    """Mean return with its 95 % bootstrap interval, per policy."""

    def no_op(_, observation, key):
        return jnp.zeros(config.episodes, jnp.int32)

    def uniform(_, observation, key):
        return jax.random.randint(key, (config.episodes,), 0, env.spec.num_actions)

    result: dict[str, object] = {"env": config.env, "seed": config.seed}
    for stream, (name, policy) in enumerate({"no_op": no_op, "random": uniform}.items()):
        env = envs.make(config.env, num_envs=config.episodes, seed=config.seed, stream=stream)
        key = jax.random.fold_in(jax.random.key(config.seed), stream)
        episodes = envs.EpisodePlayer(env, policy).play(None, key, config.max_steps)
        result[name] = summary(episodes, config.seed)
    return result


def summary(episodes: envs.Episodes, seed: int) -> dict[str, object]:
    """Statistics over episodes; an unfinished one counts with what it had, and is reported."""
    returns = episodes.returns.astype(float)
    resampled = np.random.default_rng(seed).choice(returns, (10_000, len(returns))).mean(axis=1)
    return {
        "mean": returns.mean(),
        "ci95": np.percentile(resampled, [2.5, 97.5]).tolist(),
        "min": returns.min(),
        "max": returns.max(),
        "episodes": len(returns),
        "unfinished": int((~episodes.finished).sum()),
        "mean_length": float(episodes.lengths.mean()),
        "min_length": int(episodes.lengths.min()),
        "max_length": int(episodes.lengths.max()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, play, print.

    Raises:
        InvalidInput: an unknown environment or a value out of range.
    """
    config = parse(Config, arguments)
    result = scores(config)
    if config.json:
        print(json.dumps(result))
        return
    for name in ("no_op", "random"):
        row = result[name]
        low, high = row["ci95"]
        print(
            f"{config.env} {name}: mean {row['mean']:.2f} (95 % [{low:.2f}, {high:.2f}]), from {row['min']:g} to "
            f"{row['max']:g}, {row['episodes']} games of {row['mean_length']:.0f} steps, "
            f"{row['unfinished']} unfinished"
        )


if __name__ == "__main__":
    run(main)
