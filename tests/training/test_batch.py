"""Many seeds at a time equal runs of their own."""

import numpy as np
import pytest

from admm_jax.errors import InvalidInput
from admm_jax.training.batch import Plan, train_seeds
from admm_jax.training.config import TrainConfig
from tests.training.builders import build, cartpole

# A round is 8 workers x 2 environments x 12 steps = 192 calls.
PLAN = Plan(total_steps=700, eval_every=250, eval_episodes=3, final_episodes=5)


def test_when_to_look():
    config = cartpole()
    assert PLAN.rounds(config) == 4
    assert PLAN.evaluation_rounds(config) == [2, 3, 4]
    assert Plan(total_steps=192, eval_every=1000).evaluation_rounds(config) == [1]
    assert Plan(total_steps=576, eval_every=288).evaluation_rounds(config) == [2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["admm", "a3c"])
def test_seeds_together_learn_what_each_learns_alone(rule):
    changes = {"rule": "a3c", "loss": "a2c", "local_epochs": 1, "minibatches": 1} if rule == "a3c" else {}
    config = cartpole(**changes)
    trained = train_seeds(config, (11, 4), PLAN)
    runs = trained.runs
    assert trained.ledger.parameters == build(config).model.size
    assert trained.seconds_per_round > 0
    assert [run.seed for run in runs] == [11, 4]
    for run in runs:
        alone = build(cartpole(seed=run.seed, **changes))
        rows = [alone.step(alone.state)]
        for _ in range(PLAN.rounds(config) - 1):
            rows.append(alone.step(rows[-1][0]))
        for name in ("entropy", "kl_to_z", "primal_residual"):
            expected = [float(metrics[name]) for _, metrics in rows]
            np.testing.assert_allclose(run.metrics[name], expected, rtol=2e-3, atol=1e-5)
        assert [evaluated.scores.episodes for evaluated in run.evaluations] == [3, 3, 5]
        assert run.evaluations[-1].env_steps == int(rows[-1][1]["env_steps"])
    assert runs[0].metrics["entropy"][-1] != runs[1].metrics["entropy"][-1]
    if rule == "a3c":
        assert runs[0].metrics["staleness_histogram"].shape == (4, 8)


@pytest.mark.parametrize("seeds", [(), (3, 3)])
def test_seeds_are_different(seeds):
    with pytest.raises(InvalidInput, match="seeds"):
        train_seeds(cartpole(), seeds, PLAN)


def test_emulators_train_one_seed_at_a_time():
    with pytest.raises(InvalidInput, match="one seed at a time"):
        train_seeds(TrainConfig(workers=1, envs_per_worker=1), (0,), PLAN)
