"""A cell becomes rows that a report can be made of."""

import json

import numpy as np
import pytest

from admm_jax.analysis.ledger import Ledger
from admm_jax.analysis.links import LINKS, meeting_rounds
from admm_jax.comparison import Cell, Results, Suite
from admm_jax.comparison.report import write_report
from admm_jax.comparison.runner import key, run_cell, simulated
from admm_jax.training.batch import Plan

TINY = Suite(
    env="gymnax:CartPole-v1",
    plan=Plan(total_steps=300, eval_every=150, eval_episodes=2, final_episodes=3),
    cells=(Cell("admm", "ppo"), Cell("a3c", "a2c")),
    target=5,
    settings={"workers": 2, "hidden": (8,), "heterogeneity": "physics", "spread": 0.5},
    meeting={"envs_per_worker": 2, "rollout": 16, "minibatches": 2, "local_epochs": 1},
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    results = Results(folder)
    for cell in TINY.cells:
        config = TINY.config(cell)
        results.add(run_cell("tiny", TINY, cell, config, [4, 2], folder, lambda text: None))
    return results


@pytest.mark.slow
def test_rows_say_what_was_run_and_what_it_cost(results):
    admm, other, *a3c = results.rows
    assert [row["seed"] for row in results.rows] == [4, 2, 4, 2]
    assert admm["key"] == key(TINY.config(TINY.cells[0]), TINY.plan, 4) != other["key"]
    # 64 calls per round: 5 rounds reach 300.
    assert (admm["rounds"], admm["local_steps"], admm["exchanges"]) == (5, 10, 5)
    size = admm["bytes_sent_per_worker"] // (4 * 2 * 5)
    assert admm["bytes_sent_per_worker"] == 4 * 2 * 5 * size
    assert a3c[0]["bytes_sent_per_worker"] == 4 * size * a3c[0]["exchanges"]
    assert a3c[0]["bytes_received_per_worker"] == 4 * size * (a3c[0]["exchanges"] // 5)
    assert sum(a3c[0]["staleness_histogram"]) == 2 * a3c[0]["exchanges"]
    for row in results.rows:
        assert row["eval_return_worst_worker"] <= row["eval_return_mean"]
        assert row["steps_to_target"] == row["curve"][0][1]  # everyone scores more than 5
        assert set(row["simulated_seconds"]) == set(row["waiting_share"]) == set(LINKS)
        assert row["simulated_seconds"]["10 Mb/s"] > row["simulated_seconds"]["100 Gb/s"] > 0
        assert row["config"]["seed"] == row["seed"]


@pytest.mark.slow
def test_the_report_shows_every_algorithm_and_wins_and_losses(results):
    page = write_report(results).read_text()
    assert "| admm | ppo | default | 2 |" in page
    assert "| a3c | a2c | default | 2 |" in page
    assert "random actions" in page
    for name in ("env-steps", "bytes", "seconds", "profile"):
        assert (results.folder / f"tiny-CartPole-v1-physics-{name}.png").stat().st_size > 5000
    assert json.loads((results.folder / "results.jsonl").read_text().splitlines()[0])["suite"] == "tiny"


def test_simulated_time_of_rounds_is_the_mean_over_those_that_share():
    ledger = Ledger(workers=4, parameters=1000, steps_per_round=8, share_moment_every=2)
    link = LINKS["1 Gb/s"]
    seconds = [meeting_rounds([size], [0.1] * 4, 1, link).seconds for size in (1000, 2000)]
    assert simulated(ledger, 10, 0.1, "1 Gb/s").seconds == pytest.approx(5 * sum(seconds))


def test_simulated_time_of_pushes_scales_with_their_number():
    ledger = Ledger(workers=4, parameters=1000, steps_per_round=50, pushes_per_round=50, fetch_every=5)
    short, long = (simulated(ledger, rounds, 0.5, "10 Mb/s") for rounds in (8, 80))
    assert long.seconds == pytest.approx(10 * short.seconds)
    assert np.isclose(long.waiting_share, short.waiting_share)
    assert 0 < long.waiting_share < 1
