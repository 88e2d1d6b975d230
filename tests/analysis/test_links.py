"""Time by hand, and the simulated server between its bounds."""

import pytest

from admm_jax.analysis.ledger import mean_of
from admm_jax.analysis.links import LINKS, Link, mean_seconds, meeting_rounds, pushing, undisturbed_share
from admm_jax.errors import InvalidInput

# 1,000 numbers take 0.032 s at 1 Mb/s.
LINK = Link(latency=0.1, bandwidth=1e6)


def test_seconds_of_a_mean():
    assert mean_seconds(1000, 4, "server", LINK) == pytest.approx(2 * (0.1 + 4 * 0.032))
    assert mean_seconds(1000, 4, "ring", LINK) == pytest.approx(6 * (0.1 + 0.008))
    assert mean_seconds(1000, 4, "all_to_all", LINK) == pytest.approx(0.1 + 3 * 0.032)
    assert mean_seconds(1000, 1, "ring", LINK) == mean_seconds(1000, 1, "all_to_all", LINK) == 0


@pytest.mark.parametrize("topology", ["ring", "all_to_all"])
def test_hops_and_bytes_are_those_of_the_ledger(topology):
    traffic = mean_of(700, 6, topology)
    assert mean_seconds(700, 6, topology, LINK) == pytest.approx(traffic.hops * 0.1 + 8 * traffic.up / 1e6)


def test_everyone_waits_for_the_slowest():
    timing = meeting_rounds([1000, 500], [1.0, 3.0], 10, LINK, "all_to_all")
    each = 3 + (0.1 + 0.032) + (0.1 + 0.016)
    assert timing.seconds == pytest.approx(10 * each)
    assert timing.waiting_share == pytest.approx(1 - 2 / each)


def test_one_worker_that_pushes_waits_as_the_formula_says():
    timing = pushing(1000, [0.5], pushes=40, fetch_every=4, link=LINK)
    assert timing.waiting_share == pytest.approx(undisturbed_share(1000, 0.5, 4, LINK))
    assert timing.seconds == pytest.approx(40 * 0.5 + 50 * 0.132)


def test_two_workers_by_hand():
    # No latency, a message takes 1 s. Both ask at 2: worker 0 is served until 3, worker 1 until 4. They compute until
    # 5 and 6, are served until 6 and 7, then fetch until 7 and 8.
    timing = pushing(1000, [2.0, 2.0], pushes=2, fetch_every=2, link=Link(0, 32e3))
    assert timing.seconds == pytest.approx(8)
    assert timing.waiting_share == pytest.approx((3 / 7 + 4 / 8) / 2)


@pytest.mark.parametrize("workers", [2, 8, 32])
def test_a_server_that_is_shared_is_between_its_bounds(workers):
    timing = pushing(1000, [0.2] * workers, pushes=60, fetch_every=5, link=LINK)
    alone = 60 * 0.2 + 72 * 0.132
    assert timing.seconds >= max(alone, workers * 60 * 0.032) - 1e-9
    assert timing.seconds <= alone + workers * 72 * 0.032
    assert timing.waiting_share >= undisturbed_share(1000, 0.2, 5, LINK) - 1e-9


def test_more_workers_wait_longer_for_a_server():
    shares = [pushing(20_000, [0.05] * n, 30, 5, LINKS["1 Gb/s"]).waiting_share for n in (1, 8, 64, 256)]
    assert shares == sorted(shares)
    assert shares[-1] > 2 * shares[0]


def test_computing_takes_time():
    with pytest.raises(InvalidInput, match="compute"):
        meeting_rounds([10], [1.0, 0.0], 1, LINK)
    with pytest.raises(InvalidInput, match="compute"):
        pushing(10, [-1.0], 1, 1, LINK)
