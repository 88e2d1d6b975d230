"""Observations with mean 0 and deviation 1, element by element, by statistics that all workers share.

A ball that crosses a pixel once in a thousand frames hardly shows in an image scaled to [0, 1]; divided by the
deviation of its pixel it is the largest number in sight. Statistics are merged exactly, as if all observations had been
seen in one place (Chan, Golub & LeVeque 1983, "Algorithms for computing the sample variance"), never averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax.numpy as jnp

LIMIT = 5.0
"""Normalised observations are cut off at this many deviations."""
BYTE_STEP = LIMIT / 127
"""Normalised images stay bytes: int8 multiples of this many deviations."""


class ObservationMoments(NamedTuple):
    """What has been seen so far, [*obs] float32 each but for the count.

    Attributes:
        count: observations, a float32 scalar.
        mean: of each element, in the unit of the observation.
        variance: of each element, in that unit squared (the population's: divided by the count).
    """

    count: chex.Array
    mean: chex.Array
    variance: chex.Array


class ShiftedSums(NamedTuple):
    """Sums over observations of their distance to a common reference; these can be added up in any order.

    Attributes:
        count: observations, float32 [...].
        first: sum of x - reference, [..., *obs].
        second: sum of (x - reference)^2, [..., *obs].
    """

    count: chex.Array
    first: chex.Array
    second: chex.Array


def initial_moments(observation_shape: Sequence[int], observation_dtype: chex.ArrayDType) -> ObservationMoments:
    """Before anything was seen: normalising then only scales uint8 to [0, 1], and leaves floats as they are."""
    deviation = 1.0 if jnp.issubdtype(observation_dtype, jnp.floating) else 255.0
    return ObservationMoments(
        count=jnp.zeros(()),
        mean=jnp.zeros(tuple(observation_shape)),
        variance=jnp.full(tuple(observation_shape), deviation**2),
    )


def shifted_sums(observation: chex.Array, valid: chex.Array, moments: ObservationMoments) -> ShiftedSums:
    """Sums of one worker's observations.

    Args:
        observation: [B, *obs], raw.
        valid: [B] bool; other rows, and rows with a number that is not finite, do not count.
        moments: their mean is the reference, near which float32 sums lose nothing.
    """
    rows = (slice(None), *[None] * (observation.ndim - 1))
    distance = observation.astype(jnp.float32) - moments.mean
    counts = valid
    if jnp.issubdtype(observation.dtype, jnp.floating):
        counts &= jnp.isfinite(observation).all(axis=tuple(range(1, observation.ndim)))
    distance = jnp.where(counts[rows], distance, 0)
    return ShiftedSums(counts.sum(dtype=jnp.float32), distance.sum(axis=0), (distance**2).sum(axis=0))


def merge(moments: ObservationMoments, sums: ShiftedSums) -> ObservationMoments:
    """Moments of what was seen before and of what ``sums`` (taken about ``moments.mean``) add to it.

    With n seen before and m new ones of mean distance delta: mean + m/(n+m) delta, and the deviations of both groups
    about that mean.
    """
    total = moments.count + sums.count
    # Nothing new: divide by 1 and change nothing. Nothing old: the variance to start with does not count.
    safe_total, safe_new = jnp.maximum(total, 1), jnp.maximum(sums.count, 1)
    shift = sums.first / safe_new
    new_variance = jnp.maximum(sums.second / safe_new - shift**2, 0)
    share = sums.count / safe_total
    variance = (1 - share) * moments.variance + share * new_variance + share * (1 - share) * shift**2
    return ObservationMoments(total, moments.mean + share * shift, variance)


def normalized(observation: chex.Array, moments: ObservationMoments) -> chex.Array:
    """(x - mean) / (deviation + one quantum), cut off at ``LIMIT`` deviations.

    The quantum (one grey level, 1e-4 for floats) keeps elements that hardly ever change from being blown up.

    Args:
        observation: [..., *obs].

    Returns:
        float32 for floats; for uint8 int8 in units of ``BYTE_STEP`` deviations, which networks take as such.
    """
    is_image = observation.dtype == jnp.uint8
    scaled = (observation - moments.mean) / (jnp.sqrt(moments.variance) + (1.0 if is_image else 1e-4))
    limited = jnp.clip(scaled, -LIMIT, LIMIT)
    return jnp.round(limited / BYTE_STEP).astype(jnp.int8) if is_image else limited
