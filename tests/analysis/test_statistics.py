"""Intervals, means of the middle, differences and profiles, by hand."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from admm_jax.analysis.statistics import (
    bootstrap,
    bootstrap_ci95,
    bootstrap_difference,
    interquartile_mean,
    mean,
    oscillation,
    performance_profile,
)


def test_a_sample_without_spread_has_no_width():
    assert bootstrap_ci95([-20.5] * 7) == (-20.5, -20.5)


def test_the_interval_is_that_of_the_normal_approximation():
    sample = np.random.default_rng(3).normal(5, 2, size=200)
    low, high = bootstrap_ci95(sample)
    half = 1.96 * sample.std() / np.sqrt(200)
    assert low == pytest.approx(sample.mean() - half, abs=0.05)
    assert high == pytest.approx(sample.mean() + half, abs=0.05)
    assert bootstrap_ci95(sample) == (low, high)


def test_nothing_has_no_interval():
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_ci95([])


def test_the_middle_of_eight_and_of_five():
    assert interquartile_mean(np.array([9.0, 1, 2, 100, 4, 3, -50, 8])) == (2 + 3 + 4 + 8) / 4
    assert interquartile_mean(np.array([5.0, 1, 2, 100, 4])) == pytest.approx((0.75 * 2 + 4 + 0.75 * 5) / 2.5)
    assert interquartile_mean(np.array([7.0])) == 7
    assert interquartile_mean(np.array([1.0, 3.0])) == 2


@pytest.mark.parametrize("count", [4, 8, 12, 40])
def test_it_is_the_trimmed_mean_where_quarters_are_whole(count):
    values = np.random.default_rng(count).normal(size=(3, count))
    np.testing.assert_allclose(interquartile_mean(values), trim_mean(values, 0.25, axis=-1))


def test_an_outlier_moves_the_mean_alone():
    plain, wild = [4.0, 5, 6, 7, 5, 6, 4, 7], [4.0, 5, 6, 7, 5, 6, 4, 700]
    assert bootstrap(wild).value == bootstrap(plain).value
    assert bootstrap(wild, mean).value > bootstrap(plain, mean).value + 80


def test_pairs_cancel_what_seeds_share():
    seeds = np.random.default_rng(5).normal(0, 10, size=12)
    apart = bootstrap_difference(seeds + 1, seeds, paired=False, statistic=mean)
    paired = bootstrap_difference(seeds + 1, seeds, paired=True, statistic=mean)
    assert paired == pytest.approx((1, 1, 1))
    assert apart.value == pytest.approx(1)
    assert apart.low < -3
    assert apart.high > 5


def test_differences_need_values_that_fit():
    with pytest.raises(ValueError, match="paired"):
        bootstrap_difference([1, 2], [1, 2, 3], paired=True)
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_difference([], [1.0], paired=False)


def test_profile_is_the_share_above():
    np.testing.assert_array_equal(performance_profile([1, 2, 2, 5], [0, 1, 2, 6]), [1, 0.75, 0.25, 0])


def test_oscillation_of_a_square_wave():
    assert oscillation([0, 2] * 10, window=2) == pytest.approx(1)
    assert oscillation([3.0] * 9, window=4) == 0
    assert oscillation([0, float("nan"), 2, float("nan"), 0], window=2) == pytest.approx(1)
    assert np.isnan(oscillation([1.0, 2.0], window=3))
