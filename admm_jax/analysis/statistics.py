"""Statistics of scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def bootstrap_ci95(values: Sequence[float], resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean (Efron & Tibshirani 1993, chapter 13).

    Args:
        values: at least one number.
        resamples: how often the sample is drawn anew.
        seed: of the draws, so that the same values give the same interval.

    Raises:
        ValueError: no values.
    """
    sample = np.asarray(values, dtype=float)
    if sample.size == 0:
        raise ValueError("a confidence interval needs at least one value")
    draws = np.random.default_rng(seed).integers(sample.size, size=(resamples, sample.size))
    low, high = np.percentile(sample[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)
