"""Traffic by hand, on every topology."""

import pytest

from admm_jax.analysis.ledger import NOTHING, TOPOLOGIES, Ledger, Traffic, mean_of


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({}, [[100], [100], [100]]),
        ({"share_moment_every": 1}, [[200], [200], [200]]),
        ({"share_moment_every": 3}, [[100], [100], [200]]),
        ({"averages_gradients": True}, [[100] * 8] * 3),
        ({"share_moment_every": 2, "scalars_per_round": 6}, [[106], [206], [106]]),
        ({"share_moment_every": 1, "observation_size": 12}, [[225], [225], [225]]),
    ],
)
def test_numbers_of_the_first_rounds(settings, numbers):
    ledger = Ledger(workers=3, parameters=100, steps_per_round=7, **settings)
    assert [ledger.exchanged(index) for index in range(3)] == numbers
    assert ledger.uplink_bytes(2) == 4 * sum(numbers[2])
    assert ledger.traffic(3).up == 4 * sum(sum(row) for row in numbers)


def test_a_mean_of_five_workers():
    assert mean_of(30, 5, "server") == Traffic(120, 120, 1200, 10, 2)
    assert mean_of(30, 5, "ring") == Traffic(192, 192, 960, 40, 8)
    assert mean_of(30, 5, "all_to_all") == Traffic(480, 480, 2400, 20, 1)


def test_one_worker_only_talks_to_a_server():
    assert mean_of(30, 1, "server").total == 240
    assert mean_of(30, 1, "ring") == mean_of(30, 1, "all_to_all") == NOTHING


def test_servers_and_rings_grow_linearly_and_all_to_all_quadratically():
    sizes = {topology: [mean_of(10, workers, topology).total for workers in (8, 16, 32)] for topology in TOPOLOGIES}
    assert sizes["server"] == [80 * 8, 80 * 16, 80 * 32]
    assert sizes["ring"] == [80 * 7, 80 * 15, 80 * 31]
    assert sizes["all_to_all"] == [40 * 8 * 7, 40 * 16 * 15, 40 * 32 * 31]


def test_pushes_go_up_and_fetches_come_down():
    ledger = Ledger(workers=4, parameters=50, steps_per_round=6, pushes_per_round=6, fetch_every=5)
    assert ledger.uplink_bytes(0) == 6 * 200
    # 10 rounds: 60 pushes and 12 fetches per worker.
    assert ledger.traffic(10) == Traffic(60 * 200, 12 * 200, 4 * 72 * 200, 4 * 72, 72)
    with pytest.raises(ValueError, match="server"):
        ledger.traffic(1, "ring")


def test_moments_of_observations_ride_beside_pushes():
    ledger = Ledger(workers=2, parameters=50, steps_per_round=3, pushes_per_round=3, fetch_every=1, observation_size=4)
    assert ledger.uplink_bytes(0) == 4 * (150 + 9)
    assert ledger.traffic(2).up == 2 * 4 * (150 + 9)
    assert ledger.traffic(2).messages == 2 * (2 * 2 + 2 * 6)


def test_rounds_that_share_are_counted():
    ledger = Ledger(workers=2, parameters=10, steps_per_round=1, share_moment_every=3)
    assert ledger.traffic(7, "ring").up == 4 * (10 * 7 + 10 * 2)
