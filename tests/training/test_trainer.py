"""Whole runs: records, exact resume, failures, the target."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.errors import InvalidInput
from admm_jax.training.options import RunOptions
from admm_jax.training.rules import spelled_out
from admm_jax.training.run_folder import RunFolder, read_rows
from admm_jax.training.trainer import AllWorkersFailed, Interrupted, Totals, Trainer, train
from tests.training.builders import cartpole

ROUND = 8 * 2 * 12
QUIET = {"progress": False, "eval_every": 0, "final_episodes": 3, "checkpoint_minutes": 1000.0}
SUMMARY_FIELDS = set(
    "algorithm rule loss env seed workers devices env_steps rounds local_steps eval_return_mean eval_return_ci95 "
    "eval_episodes steps_to_target seconds_to_target wall_seconds compile_seconds env_steps_per_second "
    "bytes_sent_per_worker primal_residual dual_residual z_sha256 state_sha256 config versions git_commit".split()
)


def run(path, rounds, config=None, **options):
    """Train for a number of rounds; a round has at most ROUND valid steps, and at least half as many."""
    return train(config or cartpole(), RunOptions(run_dir=path, total_steps=rounds, **(QUIET | options)))


def stop_after(monkeypatch, rounds, act):
    """Call ``act(trainer, state, row)`` after a number of rounds."""
    original = Trainer._handle_failures

    def wrapped(self, state, metrics):
        state = original(self, state, metrics)
        return act(self, state) or state if self.totals.rounds == rounds else state

    monkeypatch.setattr(Trainer, "_handle_failures", wrapped)


def interrupt(trainer, state):
    trainer.interrupt.signal = 2


@pytest.mark.slow
def test_records_of_a_run(tmp_path):
    summary = run(tmp_path / "a", 400, eval_every=300, eval_episodes=2, log_every=1)
    assert set(summary) >= SUMMARY_FIELDS
    stored = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert stored["z_sha256"] == summary["z_sha256"]
    rows = read_rows(tmp_path / "a" / "metrics.jsonl")
    assert [row["round"] for row in rows] == list(range(1, summary["rounds"] + 1))
    assert rows[-1]["env_steps"] == summary["env_steps"] >= 400 > rows[-2]["env_steps"]
    assert summary["local_steps"] == 6 * summary["rounds"]
    assert summary["bytes_sent_per_worker"] == 4 * 2 * summary["parameters"] * summary["rounds"]
    evaluations = read_rows(tmp_path / "a" / "evaluations.jsonl")
    assert [row["eval_episodes"] for row in evaluations] == [2, 3]
    assert evaluations[-1]["eval_return_mean"] == pytest.approx(summary["eval_return_mean"], rel=1e-5)
    assert summary["steps_to_target"] is None
    assert any((tmp_path / "a" / "tensorboard").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["admm", "a3c"])
def test_ten_rounds_equal_five_and_five(tmp_path, monkeypatch, rule):
    changes = {"admm": {}, "a3c": {"rule": "a3c", "loss": "a2c", "local_epochs": 1, "minibatches": 1}}[rule]
    config = cartpole(**changes)
    steps = 9 * ROUND  # ten rounds: resets are no steps, and short games make some
    whole = run(tmp_path / "whole", steps, config)
    with monkeypatch.context() as patch:
        stop_after(patch, 5, interrupt)
        with pytest.raises(Interrupted) as caught:
            run(tmp_path / "parts", steps, config)
    assert caught.value.code == 130
    parts = train(config, RunOptions(resume=tmp_path / "parts", total_steps=steps, **QUIET))
    assert parts["rounds"] == whole["rounds"] == 10
    for name in ("state_sha256", "z_sha256", "env_steps", "bytes_sent_per_worker", "eval_return_mean"):
        assert parts[name] == whole[name], name
    events = read_rows(tmp_path / "parts" / "events.jsonl")
    assert [event["event"] for event in events] == ["interrupted", "resumed"]
    assert events[1]["environments"] == "restored"
    rows = read_rows(tmp_path / "parts" / "metrics.jsonl")
    assert [row["round"] for row in rows] == list(range(1, 11))


@pytest.mark.slow
def test_resume_refuses_another_run(tmp_path, monkeypatch):
    run(tmp_path / "a", 10)
    for changes, named in [({"workers": 4}, "workers"), ({"rule": "fedavg"}, "rule"), ({"hidden": (8,)}, "hidden")]:
        with pytest.raises(InvalidInput, match=named):
            Trainer(cartpole(**changes), RunOptions(resume=tmp_path / "a"))
    with pytest.raises(InvalidInput, match="run_dir"):
        Trainer(cartpole(), RunOptions(resume=tmp_path / "a", run_dir=tmp_path / "b"))
    Trainer(cartpole(), RunOptions(resume=tmp_path / "a", run_dir=tmp_path / "a"))
    with RunFolder.reopen(tmp_path / "a"), pytest.raises(InvalidInput, match="no other process"):
        train(cartpole(), RunOptions(resume=tmp_path / "a", **QUIET))


def test_resume_needs_a_checkpoint(tmp_path):
    RunFolder.create(tmp_path / "a", {"train": spelled_out(cartpole()).to_json(), "run": {}}).close()
    with pytest.raises(InvalidInput, match="has a checkpoint"):
        Trainer(cartpole(), RunOptions(resume=tmp_path / "a"))


def test_what_does_not_fit_leaves_no_folder(tmp_path):
    for config, options in [
        (cartpole(), {"devices": 3}),
        (cartpole(), {"devices": 16}),
        (cartpole(workers=16), {"devices": 16}),
        (cartpole(network="article", hidden=None), {}),
        (cartpole(env="gymnax:Pendulum-v1"), {}),
    ]:
        with pytest.raises(InvalidInput):
            run(tmp_path / "a", 10, config, **options)
        assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_the_target_is_confirmed_and_ends_the_run(tmp_path):
    summary = run(tmp_path / "a", 10 * ROUND, target_return=5.0, eval_every=200, eval_episodes=2)
    assert summary["steps_to_target"] == summary["env_steps"] < 5 * ROUND
    assert summary["seconds_to_target"] <= summary["wall_seconds"]


def poison(workers):
    def act(trainer, state):
        mu = jax.tree.map(lambda leaf: leaf.at[np.array(workers)].set(jnp.nan), state.adam.mu)
        return state._replace(adam=state.adam._replace(mu=mu))

    return act


@pytest.mark.slow
def test_if_all_workers_fail_three_rounds_running_the_run_stops(tmp_path, monkeypatch):
    original = Trainer._handle_failures

    def wrapped(self, state, metrics):
        state = original(self, state, metrics)
        return poison(range(8))(self, state) if self.totals.rounds >= 2 else state

    monkeypatch.setattr(Trainer, "_handle_failures", wrapped)
    with pytest.raises(AllWorkersFailed, match="3 rounds running"):
        run(tmp_path / "a", 50 * ROUND)
    monkeypatch.undo()
    trainer = Trainer(cartpole(), RunOptions(resume=tmp_path / "a", **QUIET))
    trainer._wall_start = 0.0
    with trainer._open_folder() as trainer.folder:
        from admm_jax.training.checkpoints import Checkpoints

        trainer.checkpoints = Checkpoints(tmp_path / "a" / "checkpoints", 3, True)
        state = trainer._first_state()
    assert trainer.totals.rounds == 5
    assert np.isfinite(state.consensus.shared.z).all()


@pytest.mark.slow
def test_a_worker_that_keeps_failing_loses_its_dual(tmp_path, monkeypatch):
    original = Trainer._handle_failures
    duals = {}

    def wrapped(self, state, metrics):
        state = original(self, state, metrics)
        duals[self.totals.rounds] = np.asarray(state.consensus.workers.scaled_dual)
        return poison([6])(self, state) if 2 <= self.totals.rounds < 5 else state

    monkeypatch.setattr(Trainer, "_handle_failures", wrapped)
    summary = run(tmp_path / "a", 5 * ROUND)
    assert summary["failed_updates"] == 3
    np.testing.assert_allclose(duals[5].sum(axis=0), 0, atol=1e-5)
    # Worker 6 kept its dual while it failed (up to the change of unit), then lost it: all of its row is the shift.
    assert np.abs(duals[4][6]).max() > 0
    warnings = [row for row in read_rows(tmp_path / "a" / "events.jsonl") if row["event"] == "warning"]
    assert sum("not finite" in row["text"] for row in warnings) == 3
    assert sum("dual forgotten" in row["text"] for row in warnings) == 1


@pytest.mark.slow
def test_training_on_at_a_rate_of_zero_is_recorded(tmp_path):
    run(tmp_path / "a", 2 * ROUND, cartpole(anneal_steps=ROUND))
    (event,) = read_rows(tmp_path / "a" / "events.jsonl")
    assert f"the learning rate is 0 from {ROUND} steps on" in event["text"]
    assert [row["lr"] for row in read_rows(tmp_path / "a" / "metrics.jsonl")][-1] == 0


def test_recent_games_are_about_the_last_forty():
    totals = Totals()
    for score in range(10):
        totals.games(10.0 * score, 10)
    assert sum(count for _, count in totals.recent) == 40
    assert totals.recent_return == pytest.approx((6 + 7 + 8 + 9) / 4)
    totals.games(0.0, 0)
    assert len(totals.recent) == 4


@pytest.mark.slow
def test_devices_do_not_change_a_run(tmp_path):
    one, four = (run(tmp_path / str(devices), 2 * ROUND, devices=devices) for devices in (1, 4))
    assert one["env_steps"] == four["env_steps"]
    assert four["devices"] == 4
    assert one["primal_residual"] == pytest.approx(four["primal_residual"], rel=1e-3)
