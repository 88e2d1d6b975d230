"""Play the policy that a run saved: scores of full games, in the run's environment or independently in ALE.

python experiments/evaluate.py runs/NAME --episodes 30
python experiments/evaluate.py runs/NAME --backend ale --json
python experiments/evaluate.py runs/NAME --gif game.gif
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

from admm_jax import cli, load_policy
from admm_jax.errors import at_least
from admm_jax.training.evaluation import Evaluator, play_in_ale
from admm_jax.training.recording import record_game


@dataclass(frozen=True)
class Flags:
    """Play the policy that a run saved."""

    run: tyro.conf.Positional[Path]
    """Folder of the run; config.json and policy.npz of it are enough."""
    episodes: int = 30
    """Full games, one per environment."""
    backend: Literal["same", "ale"] = "same"
    """The environment of the run, or the Arcade Learning Environment with preprocessing of its own (Atari only)."""
    greedy: bool = False
    """Take the most probable actions instead of sampled ones."""
    seed: int = 0
    """Of the games and of the sampling; other games than those of training in any case."""
    gif: Path | None = None
    """Record a game there as well (image environments)."""
    json: bool = False
    """Print one JSON object."""

    def __post_init__(self) -> None:
        at_least("episodes", self.episodes, 1)
        at_least("seed", self.seed, 0)


def main(arguments: Sequence[str]) -> None:
    flags = cli.parse(Flags, arguments)
    policy = load_policy(flags.run)
    if flags.backend == "ale":
        scores = play_in_ale(policy, flags.episodes, greedy=flags.greedy, seed=flags.seed)
    else:
        evaluate = Evaluator(replace(policy.config, seed=flags.seed), policy.model, flags.greedy)
        scores = evaluate(policy.weights, flags.episodes, round_index=0)
    result = {
        "run": str(flags.run),
        "env": policy.config.env,
        "backend": flags.backend,
        "greedy": flags.greedy,
        "seed": flags.seed,
        "return_mean": scores.mean,
        "return_ci95": list(scores.ci95),
        "episodes": scores.episodes,
        "unfinished": scores.unfinished,
        "mean_length": scores.mean_length,
        "returns": scores.returns,
        **scores.worker_record,
    }
    if flags.gif is not None:
        result["gif"], result["gif_return"] = (
            str(flags.gif),
            record_game(policy, flags.gif, greedy=flags.greedy, seed=flags.seed),
        )
    if flags.json:
        print(json.dumps(result))
        return
    print(f"{policy.config.env}: {scores}")
    if flags.gif is not None:
        print(f"recorded a game of return {result['gif_return']:g} in {flags.gif}")


if __name__ == "__main__":
    cli.run(main)
