"""Intervals of means."""

import numpy as np
import pytest

from admm_jax.analysis import bootstrap_ci95


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
