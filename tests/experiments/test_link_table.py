"""The table of waiting shares: its orderings, its thresholds, and what it refuses."""

import json

import pytest

from admm_jax.analysis.links import LINKS, Link
from admm_jax.errors import InvalidInput
from experiments.link_table import Flags, a3c_share, admm_share, bandwidth_for, main

FLAGS = Flags(workers=(3,), parameters=20_000, step_seconds=1e-3, t_max=(5,), round_steps=300)


def test_longer_rollouts_and_faster_links_wait_less():
    shares = [a3c_share(FLAGS, 3, t_max, LINKS["1 Gb/s"]) for t_max in (5, 20, 80)]
    assert shares == sorted(shares, reverse=True)
    assert a3c_share(FLAGS, 3, 5, LINKS["10 Mb/s"]) > shares[0]
    assert admm_share(FLAGS, 3, LINKS["1 Gb/s"], "server") < shares[0]


def test_who_meets_waits_for_the_slowest_and_who_pushes_does_not():
    slow = Flags(workers=(5,), parameters=1000, step_seconds=1e-3, slowest=3.0)
    assert slow.compute(5, 10) == pytest.approx([0.01, 0.015, 0.02, 0.025, 0.03])
    rack = LINKS["100 Gb/s"]
    assert admm_share(slow, 5, rack, "ring") == pytest.approx(1 / 3, abs=0.01)
    assert a3c_share(slow, 5, 20, rack) < 0.01


def test_at_the_threshold_workers_wait_nine_tenths():
    bandwidth = bandwidth_for(FLAGS, 3, 5)
    assert a3c_share(FLAGS, 3, 5, Link(1e-5, bandwidth * 0.99)) > 0.9
    assert a3c_share(FLAGS, 3, 5, Link(1e-5, bandwidth * 1.05)) < 0.9


def test_it_prints_tables_and_json(capsys):
    arguments = "--workers 2 --parameters 1000 --step-seconds 0.001".split()
    main([*arguments, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert [row["link"] for row in result["waiting_share"]] == list(LINKS)
    assert result["admm_traffic_per_round"][0]["all_to_all_megabytes"] == pytest.approx(2 * 8000 / 1e6)
    waits, speeds = result["waiting_share"][2], result["steps_per_second"][2]
    assert speeds["admm_ring"] == pytest.approx((1 - waits["admm_ring"]) * 2 / 0.001)
    main(arguments)
    assert "| 2 | 10 Mb/s |" in capsys.readouterr().out


@pytest.mark.parametrize(
    "settings",
    [
        {"workers": (0,)},
        {"parameters": 0},
        {"step_seconds": 0.0},
        {"slowest": 0.5},
        {"t_max": (-5,)},
        {"fetch_every": 0},
    ],
)
def test_bad_input_is_refused(settings):
    with pytest.raises(InvalidInput) as caught:
        Flags(**settings)
    assert caught.value.field in settings
