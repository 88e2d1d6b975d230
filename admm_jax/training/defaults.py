"""Starting points: settings that were measured to work, by kind of environment, and presets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from admm_jax.training.config import TrainConfig
from admm_jax.training.options import RunOptions

_VECTOR: dict[str, Any] = {
    "workers": 8,
    "minibatches": 4,
    "lr": 1e-3,
    "network": "mlp",
    "normalize_observations": False,
    "clip_rewards": False,
}
_IMAGE: dict[str, Any] = {"workers": 4}
# A constant rate learns fastest, and ends wherever its last steps happen to lead; a falling one settles.
_ATARI: dict[str, Any] = {"anneal_from": 900_000, "anneal_steps": 1_500_000, "lr_end": 5e-5}
# Points are rare and won by aiming: large batches, and no haste to play safe.
_JAX_PONG: dict[str, Any] = {
    "normalize_observations": True,
    "envs_per_worker": 32,
    "minibatches": 16,
    "gamma": 0.995,
    "entropy_weight": 0.003,
}

# The paper's worker: one environment, a gradient per short rollout of plain returns, clipped at 40. A round is a
# compiled call and nothing more; so many ticks keep its overhead small.
_A3C: dict[str, Any] = {
    "envs_per_worker": 1,
    "rollout": 5,
    "rollouts_per_round": 100,
    "local_epochs": 1,
    "minibatches": 1,
    "max_grad_norm": 40.0,
    "gae_lambda": 1.0,
    "normalize_advantages": "none",
}

PRESETS = ("default", "smoke")


def default_config(env: str, loss: str | None = None, preset: str = "default", rule: str = "admm") -> TrainConfig:
    """Settings for an environment, a loss and a rule, before the user changes any.

    Args:
        env: name of the environment.
        loss: ppo, or a2c with rule a3c, if None.
        preset: one of `PRESETS`.
        rule: how workers agree.

    Raises:
        InvalidInput: no such environment, loss or rule.
    """
    probe = TrainConfig(env=env)  # refuses unknown names
    settings: dict[str, Any] = {"env": env, "rule": rule, "loss": loss or ("a2c" if rule == "a3c" else "ppo")}
    if probe.family in ("gymnax", "jax-pong"):
        settings |= _VECTOR
        if probe.family == "jax-pong":
            settings |= _JAX_PONG
        if "MinAtar" in env:
            settings |= {"network": "article", "hidden": (128,)}
    else:
        settings |= _IMAGE
        if probe.family == "atari":
            settings |= _ATARI
        if probe.family == "jax-pong-pixels":
            settings |= {"clip_rewards": False}
    if settings["loss"] == "a2c":
        # One pass: without a clipped ratio, later passes would be off-policy.
        settings |= {"local_epochs": 1}
    if settings["loss"] == "vtrace":
        # Minibatches of whole rollouts; corrections make a second pass worth while.
        settings |= {"local_epochs": 2, "minibatches": 4}
    if rule == "a3c":
        settings |= _A3C
    if preset == "smoke":
        settings |= (
            {"rollout": 5, "rollouts_per_round": 4}
            if rule == "a3c"
            else {"rollout": 32, "local_epochs": 1, "minibatches": 2}
        )
    return TrainConfig(**settings)


def default_options(env: str, preset: str = "default") -> RunOptions:
    """How long to train on an environment, before the user says otherwise."""
    family = TrainConfig(env=env).family
    options = RunOptions()
    if family in ("gymnax", "jax-pong"):
        options = replace(options, total_steps=500_000, eval_every=100_000)
    if family == "jax-pong":
        options = replace(options, total_steps=20_000_000, eval_every=1_000_000, log_every=4)
    if family == "atari":
        options = replace(options, total_steps=1_500_000, eval_every=100_000, log_every=4)
    if preset == "smoke":
        options = replace(options, total_steps=4_000, eval_every=2_000, eval_episodes=2, final_episodes=4, log_every=1)
    return options
