"""Bad input is refused at construction, with field, value and range."""

import json

import pytest

from admm_jax.errors import InvalidInput
from admm_jax.training.config import TrainConfig
from admm_jax.training.defaults import default_config, default_options
from admm_jax.training.options import RunOptions
from admm_jax.training.rules import make_loss, make_penalty, make_rule, spelled_out
from tests.training.builders import cartpole

NAN = float("nan")

BAD = [
    ({"kappa": 0.0}, "kappa"),
    ({"kappa": -1.0}, "kappa"),
    ({"kappa": NAN}, "kappa"),
    ({"inner": "gradient", "rho": 0.0}, "rho"),
    ({"inner": "gradient", "rho": NAN}, "rho"),
    ({"inner": "hybrid", "rho": float("inf")}, "rho"),
    ({"inner": "gradient", "kappa": 0.3}, "kappa"),
    ({"rho": 1.0}, "rho"),
    ({"rule": "fedavg", "kappa": 0.3}, "kappa"),
    ({"rule": "fedavg", "inner": "proximal"}, "inner"),
    ({"rule": "fedprox", "inner": "hybrid"}, "inner"),
    ({"rule": "fedprox", "dual_leak": 0.1}, "dual_leak"),
    ({"rule": "gradient", "share_moment_every": 1}, "share_moment_every"),
    ({"rule": "fedprox", "restart": "worker"}, "restart"),
    ({"rule": "easgdd"}, "rule"),
    ({"rule": "easgd", "elasticity": 1.5}, "elasticity"),
    ({"rule": "diloco", "outer_momentum": 1.0}, "outer_momentum"),
    ({"rule": "diloco", "outer_lr": -0.7}, "outer_lr"),
    ({"rule": "fedavg", "outer_lr": 0.7}, "outer_lr"),
    ({"elasticity": 0.5}, "elasticity"),
    ({"rule": "fedprox", "order": "textbook"}, "order"),
    ({"order": "dual_last"}, "order"),
    ({"loss": "a2c", "clip": 0.2}, "clip"),
    ({"loss": "a2c", "clip_value": True}, "clip_value"),
    ({"loss": "dqn"}, "loss"),
    ({"clip": 0.0}, "clip"),
    ({"clip_rho": 1.0}, "clip_rho"),
    ({"loss": "vtrace", "minibatches": 2, "clip_c": 0.0}, "clip_c"),
    ({"loss": "vtrace", "minibatches": 3}, "minibatches"),
    ({"loss": "vtrace", "minibatches": 2, "normalize_advantages": "global"}, "normalize_advantages"),
    ({"loss": "vtrace", "minibatches": 2, "clip": 0.2}, "clip"),
    ({"over_relaxation": 2.0}, "over_relaxation"),
    ({"dual_leak": 1.5}, "dual_leak"),
    ({"workers": 0}, "workers"),
    ({"workers": -3}, "workers"),
    ({"envs_per_worker": 0}, "envs_per_worker"),
    ({"rollout": -1}, "rollout"),
    ({"rollouts_per_round": 0}, "rollouts_per_round"),
    ({"local_epochs": 0}, "local_epochs"),
    ({"minibatches": 0}, "minibatches"),
    ({"minibatches": 7}, "minibatches"),
    ({"lr": -1e-3}, "lr"),
    ({"lr": NAN}, "lr"),
    ({"gamma": 1.01}, "gamma"),
    ({"gamma": -0.1}, "gamma"),
    ({"gae_lambda": NAN}, "gae_lambda"),
    ({"max_grad_norm": 0.0}, "max_grad_norm"),
    ({"adam_eps": 0.0}, "adam_eps"),
    ({"anneal_steps": -5}, "anneal_steps"),
    ({"anneal_steps": 300, "anneal_from": 300}, "anneal_from"),
    ({"anneal_from": 20}, "anneal_from"),
    ({"anneal_steps": 300, "lr_end": 0.5}, "lr_end"),
    ({"lr_end": 1e-5}, "lr_end"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**31}, "seed"),
    ({"share_moment_every": -1}, "share_moment_every"),
    ({"value_weight": -1.0}, "value_weight"),
    ({"channels": (8, 8)}, "channels"),
    ({"network": "resnet", "hidden": None}, "network"),
    ({"env": "gymnax:CartPol-v1"}, "env"),
    ({"env": "Pnog-v5"}, "env"),
]


@pytest.mark.parametrize(("changes", "field"), BAD)
def test_what_does_not_fit_is_refused(changes, field):
    with pytest.raises(InvalidInput) as caught:
        cartpole(**changes)
    assert caught.value.field == field
    assert str(caught.value.value) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"total_steps": 0}, "total_steps"),
        ({"eval_every": -1}, "eval_every"),
        ({"eval_episodes": 0}, "eval_episodes"),
        ({"final_episodes": 0}, "final_episodes"),
        ({"devices": 0}, "devices"),
        ({"target_return": NAN}, "target_return"),
        ({"checkpoint_minutes": -1.0}, "checkpoint_minutes"),
        ({"keep_checkpoints": 1}, "keep_checkpoints"),
        ({"log_every": 0}, "log_every"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes, field):
    with pytest.raises(InvalidInput) as caught:
        RunOptions(**changes)
    assert caught.value.field == field


def test_nearest_names_are_offered():
    with pytest.raises(InvalidInput, match="gymnax:CartPole-v1"):
        cartpole(env="gymnax:CartPol-v1")


def test_arithmetic_of_a_round():
    config = cartpole(rollouts_per_round=3, workers=5, envs_per_worker=2, rollout=12, local_epochs=2, minibatches=4)
    assert config.env_steps_per_round == 3 * 12 * 2 * 5
    assert config.steps_per_rollout == 8
    assert config.steps_per_round == 24


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"inner": "gradient", "rho": 2.5},
        {"inner": "hybrid", "kappa": 0.7},
        {"rule": "fedavg"},
        {"rule": "fedprox", "kappa": 0.9},
        {"rule": "gradient", "loss": "a2c"},
    ],
)
def test_spelling_out_changes_nothing_and_survives_json(changes):
    config = cartpole(**changes)
    full = spelled_out(config)
    assert make_rule(full) == make_rule(config)
    assert make_loss(full) == make_loss(config)
    assert make_penalty(full) == make_penalty(config)
    assert TrainConfig.from_json(json.loads(json.dumps(full.to_json()))) == full


def test_differences_are_named():
    (difference,) = cartpole(lr=0.1).differences(cartpole(lr=0.2))
    assert "lr" in difference
    assert "0.1" in difference
    assert "0.2" in difference


ENVIRONMENTS = "Pong-v5 Breakout-v5 gymnax:CartPole-v1 gymnax:Breakout-MinAtar jax-pong jax-pong-pixels".split()


@pytest.mark.parametrize("env", ENVIRONMENTS)
@pytest.mark.parametrize("loss", ["ppo", "a2c", "vtrace"])
@pytest.mark.parametrize("preset", ["default", "smoke"])
def test_defaults_exist_for_every_family(env, loss, preset):
    config = default_config(env, loss, preset)
    assert config.env == env
    assert default_options(env, preset).total_steps > 0
