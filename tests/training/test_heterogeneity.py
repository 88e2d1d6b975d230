"""Runs whose workers differ: settings, layouts, scores by worker."""

import json

import jax
import numpy as np
import pytest

from admm_jax.envs import Episodes
from admm_jax.errors import InvalidInput
from admm_jax.training.config import TrainConfig
from admm_jax.training.evaluation import Scores
from admm_jax.training.heterogeneity import of_workers
from admm_jax.training.options import RunOptions
from admm_jax.training.policy import load_policy
from admm_jax.training.rules import spelled_out
from admm_jax.training.trainer import train
from tests.training.builders import build, cartpole


def test_settings_become_deviations(tmp_path):
    assert of_workers(cartpole()) is None
    own = of_workers(cartpole(workers=2, heterogeneity="physics"))
    np.testing.assert_allclose(own.params["length"], [0.125, 2.0])
    assert spelled_out(cartpole(heterogeneity="physics")).spread == 1
    file = tmp_path / "poles.json"
    file.write_text('{"length": [0.3, 0.7]}')
    config = cartpole(workers=2, worker_params=str(file))
    file.unlink()  # the run's record holds the numbers
    again = TrainConfig.from_json(json.loads(json.dumps(config.to_json())))
    np.testing.assert_allclose(of_workers(again).params["length"], [0.3, 0.7])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"spread": 0.5}, "spread"),
        ({"heterogeneity": "physics", "spread": -1.0}, "spread"),
        ({"heterogeneity": "physics", "env": "Pong-v5"}, "heterogeneity"),
        ({"heterogeneity": "reward_scale", "clip_rewards": True}, "heterogeneity"),
        ({"heterogeneity": "physics", "worker_params": '{"length": [1]}'}, "worker_params"),
        ({"worker_params": "nowhere.json"}, "worker_params"),
        ({"worker_params": "{}"}, "worker_params"),
        ({"worker_params": '{"length": [1, 2]}'}, "worker_params"),
        ({"worker_params": '{"length": [1, 2]}', "env": "Pong-v5"}, "worker_params"),
    ],
)
def test_what_does_not_fit_is_refused(changes, field):
    with pytest.raises(InvalidInput) as caught:
        cartpole(**changes)
    assert caught.value.field == field


def test_scores_by_worker():
    returns = np.array([10.0, 20, 1, 3, 50, 70])
    finished = np.array([True, True, True, True, False, True])
    scores = Scores.of(Episodes(returns, np.ones(6), finished), workers=3)
    assert scores.by_worker == [15, 2, 70]
    assert (scores.worst_worker, scores.worst_worker_mean) == (1, 2)
    assert "worst worker 1: 2.00" in str(scores)
    alike = Scores.of(Episodes(returns, np.ones(6), finished))
    assert alike.worst_worker is None
    assert alike.worker_record == {}
    assert "worker" not in str(alike)


@pytest.mark.slow
def test_devices_do_not_change_what_unlike_workers_learn():
    alone, spread = (build(cartpole(workers=4, heterogeneity="physics"), devices) for devices in (1, 4))
    alone.rounds(2)
    spread.rounds(2)
    np.testing.assert_allclose(alone.z, spread.z, atol=1e-5)
    lengths = np.asarray(jax.device_get(spread.state.environment.own.params["length"]))
    np.testing.assert_allclose(lengths, np.repeat(0.5 * 4.0 ** np.linspace(-1, 1, 4), 2), rtol=1e-6)


@pytest.mark.slow
def test_a_run_reports_the_worst_worker(tmp_path):
    config = cartpole(workers=2, heterogeneity="conflict", spread=0.8)
    options = RunOptions(total_steps=100, eval_episodes=2, final_episodes=3, run_dir=tmp_path, progress=False)
    summary = train(config, options)
    assert summary["eval_episodes"] == 6
    assert len(summary["eval_return_by_worker"]) == 2
    assert summary["eval_return_worst_worker"] == min(summary["eval_return_by_worker"])
    assert np.mean(summary["eval_return_by_worker"]) == pytest.approx(summary["eval_return_mean"], rel=1e-5)
    assert load_policy(tmp_path)(np.zeros((3, 4), np.float32)).shape == (3,)
