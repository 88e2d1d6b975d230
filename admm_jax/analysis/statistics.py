"""Statistics of scores over games and over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Statistic = Callable[[np.ndarray], np.ndarray]
"""Values [..., n] -> [...]."""


class Estimate(NamedTuple):
    """A statistic and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def mean(values: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    return np.mean(values, axis=-1)


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half over the last axis (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the
    statistical precipice", section 4.3).

    A quarter of the weight is cut off at either end. Where n is no multiple of 4 the values at the cut count in part,
    so that with 5 or 10 seeds no more than a quarter is lost: 5 values weigh 0, 3/4, 1, 3/4, 0 after sorting.
    """
    ordered = np.sort(values, axis=-1)
    count = ordered.shape[-1]
    start = np.arange(count)
    weights = np.clip(np.minimum(start + 1, 0.75 * count) - np.maximum(start, 0.25 * count), 0, 1)
    return ordered @ weights / weights.sum()


def bootstrap(
    values: Sequence[float], statistic: Statistic = interquartile_mean, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """A statistic of a sample with its percentile interval (Efron & Tibshirani 1993, chapter 13).

    Args:
        values: at least one number.
        statistic: of values along the last axis.
        resamples: how often the sample is drawn anew.
        seed: of the draws, so that the same values give the same interval.

    Raises:
        ValueError: no values.
    """
    sample = np.asarray(values, dtype=float)
    if sample.size == 0:
        raise ValueError("a confidence interval needs at least one value")
    drawn = statistic(sample[_draws(sample.size, resamples, seed)])
    return Estimate(float(statistic(sample)), *map(float, np.percentile(drawn, [2.5, 97.5])))


def bootstrap_ci95(values: Sequence[float], resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """95 % interval of the mean; see `bootstrap`."""
    estimate = bootstrap(values, mean, resamples, seed)
    return estimate.low, estimate.high


def bootstrap_difference(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    paired: bool,
    statistic: Statistic = interquartile_mean,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """A statistic of ours minus that of theirs.

    Args:
        ours, theirs: at least one number each.
        paired: whether value k of both comes from the same seed; then seeds are drawn, not values.
        statistic, resamples, seed: see `bootstrap`.

    Raises:
        ValueError: no values, or paired samples of different sizes.
    """
    first, second = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    if not first.size or not second.size:
        raise ValueError("a difference needs at least one value on either side")
    if paired and first.size != second.size:
        raise ValueError(f"{first.size} values cannot be paired with {second.size}")
    draws = _draws(first.size, resamples, seed)
    others = draws if paired else _draws(second.size, resamples, seed + 1)
    drawn = statistic(first[draws]) - statistic(second[others])
    return Estimate(float(statistic(first) - statistic(second)), *map(float, np.percentile(drawn, [2.5, 97.5])))


def performance_profile(scores: Sequence[float], thresholds: Sequence[float]) -> np.ndarray:
    """Share of runs that score more than each threshold, [thresholds] (Agarwal et al. 2021, section 4.2)."""
    return np.mean(np.asarray(scores, float)[None, :] > np.asarray(thresholds, float)[:, None], axis=1)


def oscillation(values: Sequence[float], window: int) -> float:
    """Mean over all windows of so many values of their standard deviation; NaN if there are fewer.

    Values that are NaN (rounds in which no episode ended) are left out first.
    """
    series = np.asarray(values, dtype=float)
    series = series[np.isfinite(series)]
    if series.size < window:
        return float("nan")
    return float(np.lib.stride_tricks.sliding_window_view(series, window).std(axis=1).mean())


def _draws(size: int, resamples: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(size, size=(resamples, size))
