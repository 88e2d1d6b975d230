"""Does it learn the right numbers? Probe environments with known values, and CartPole."""

import jax
import jax.numpy as jnp
import pytest

from admm_jax.training.evaluation import Evaluator
from admm_jax.training.policy import Weights
from tests.probes import PROBES, register_probes
from tests.training.builders import build, cartpole

GAMMA = 0.9
register_probes()


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["ppo", "a2c", "vtrace"])
@pytest.mark.parametrize("name", list(PROBES))
def test_known_values_and_best_actions(name, loss):
    config = cartpole(
        env=f"gymnax:{name}",
        loss=loss,
        workers=2,
        envs_per_worker=8,
        rollout=16,
        local_epochs=1 if loss == "a2c" else 2,
        minibatches=4,
        lr=5e-3,
        gamma=GAMMA,
        gae_lambda=0.8,
        kappa=0.5,
        max_grad_norm=5.0,
        seed=3,
    )
    run = build(config)
    run.rounds(300 if loss == "a2c" else 150)
    for observation, value, action in PROBES[name].known(GAMMA):
        logits, learned = run.model.apply(run.z, jnp.asarray(observation, jnp.float32)[None])
        assert float(learned[0]) == pytest.approx(value, abs=0.1 * max(1, abs(value))), observation
        if action is not None:
            assert jax.nn.softmax(logits[0])[action] > 0.9, observation


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "bar"), [("admm", 200), ("fedavg", 200), ("gradient", 100)])
def test_cartpole_is_learned(rule, bar):
    # One step on the mean gradient moves less than four steps apart: after as many, synchronous PPO is behind.
    config = cartpole(rule=rule, workers=4, envs_per_worker=4, rollout=64, local_epochs=4, minibatches=4, lr=2e-3)
    run = build(config)
    run.rounds(80)
    scores = Evaluator(config, run.model, greedy=True)(Weights(run.z, run.state.moments), 10, round_index=0)
    assert scores.episodes == 10
    assert scores.mean > bar  # random play: 20
