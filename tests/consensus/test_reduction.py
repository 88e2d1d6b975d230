"""The weighted mean that every exchange is made of."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from admm_jax.consensus import LocalReduction, weighted_mean


def test_weighted_mean_and_the_sums_that_ride_along(x64):
    tree = {"a": jnp.array([[1.0, 2.0], [3.0, -4.0]]), "b": jnp.array([5.0, 9.0])}
    mean, total, extra = weighted_mean(tree, jnp.array([0.5, 1.5]), LocalReduction(), extra=jnp.array([2.0, 7.0]))
    np.testing.assert_allclose(mean["a"], [2.5, -2.5])
    np.testing.assert_allclose(mean["b"], 8.0)
    assert (total, extra) == (2.0, 9.0)


def test_weight_zero_leaves_out_even_what_is_not_finite(x64):
    mean, total, _ = weighted_mean(jnp.array([jnp.nan, 3.0, jnp.inf]), jnp.array([0.0, 2.0, 0.0]), LocalReduction())
    assert (mean, total) == (3.0, 2.0)


def test_no_weight_at_all_gives_zero():
    mean, total, _ = weighted_mean(jnp.array([1.0, 2.0]), jnp.zeros(2), LocalReduction())
    assert (mean, total) == (0.0, 0.0)


def test_gathering_here_is_looking():
    leaves = jnp.arange(6.0).reshape(3, 2)
    assert LocalReduction().gather(leaves) is leaves
