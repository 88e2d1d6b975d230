"""Scores of policies that learn nothing, as ``experiments/baseline_scores.py`` measures them (30 games, seed 0)."""

from __future__ import annotations

BASELINES: dict[str, dict[str, float]] = {
    "Pong-v5": {"doing nothing": -21.0, "random actions": -20.2},
    "jax-pong": {"doing nothing": -19.2, "random actions": -19.4},
    "gymnax:CartPole-v1": {"doing nothing": 9.1, "random actions": 20.1},
}
