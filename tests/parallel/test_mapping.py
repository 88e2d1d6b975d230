"""vmap, map and unrolled workers compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.parallel import map_workers, resolve_mapping, with_fixed_parameters
from admm_jax.parallel.mapping import UNROLL_LIMIT


def affine(parameters, x):
    return {"y": parameters["w"] @ x + parameters["b"]}


def setting(workers):
    rng = np.random.default_rng(7)
    parameters = {"w": jnp.array(rng.normal(size=(workers, 3, 2))), "b": jnp.array(rng.normal(size=(workers, 3)))}
    return parameters, jnp.array(rng.normal(size=(workers, 2)))


@pytest.mark.parametrize("mapping", ["vmap", "map"])
@pytest.mark.parametrize("workers", [1, 5, UNROLL_LIMIT + 1])
def test_each_worker_uses_its_own_parameters(mapping, workers):
    parameters, x = setting(workers)
    expected = np.einsum("wij,wj->wi", parameters["w"], x) + parameters["b"]
    np.testing.assert_allclose(map_workers(affine, mapping)(parameters, x)["y"], expected, rtol=1e-5)
    np.testing.assert_allclose(with_fixed_parameters(affine, parameters, mapping)(x)["y"], expected, rtol=1e-5)


def test_unrolled_workers_are_differentiable():
    parameters, x = setting(3)
    bound = jax.grad(lambda p: with_fixed_parameters(affine, p, "map")(x)["y"].sum())(parameters)
    np.testing.assert_allclose(bound["b"], np.ones((3, 3)))


@pytest.mark.parametrize(
    ("choice", "convolutional", "platform", "expected"),
    [
        ("auto", True, "cpu", "map"),
        ("auto", False, "cpu", "vmap"),
        ("auto", True, "tpu", "vmap"),
        ("auto", True, "gpu", "vmap"),
        ("vmap", True, "cpu", "vmap"),
        ("map", False, "gpu", "map"),
    ],
)
def test_default_by_platform_and_network(choice, convolutional, platform, expected):
    assert resolve_mapping(choice, convolutional=convolutional, platform=platform) == expected
