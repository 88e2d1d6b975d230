import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from admm_jax.rl.convolution import convolve, output_size

# kernel, strides, padding, images [B, height, width, channels], channels out
TABLE = [
    ((3, 3), (2, 2), "SAME", (3, 42, 42, 4), 6),
    ((3, 3), (2, 2), "SAME", (2, 21, 21, 5), 7),
    ((3, 3), (2, 2), "VALID", (2, 10, 13, 3), 4),
    ((8, 8), (4, 4), "VALID", (2, 36, 40, 2), 3),
    ((4, 4), (2, 2), "VALID", (1, 8, 9, 5), 2),
    ((3, 3), (1, 1), "VALID", (4, 3, 3, 2), 5),
    ((3, 2), (1, 3), "SAME", (2, 7, 8, 3), 4),
    ((1, 1), (1, 1), "SAME", (2, 4, 5, 3), 2),
    ((2, 2), (3, 3), "SAME", (2, 7, 6, 1), 3),
    ((5, 4), (2, 1), "SAME", (2, 6, 5, 2), 1),
]


def draw(shape, kernel, features, lead=()):
    rng = np.random.default_rng(11)
    images = rng.normal(size=(*lead, *shape)).astype(np.float32)
    kernels = rng.normal(scale=np.prod(kernel) ** -0.5, size=(*lead, *kernel, shape[-1], features))
    return images, kernels.astype(np.float32)


def result_and_gradients(function, images, kernel):
    # A cosine makes the incoming gradient different at every output.
    gradients = jax.grad(lambda x, k: jnp.sum(jnp.cos(function(x, k))), argnums=(0, 1))(images, kernel)
    return function(images, kernel), *gradients


@pytest.mark.parametrize(("kernel_size", "strides", "padding", "shape", "features"), TABLE)
def test_patches_equal_lax_with_gradients(kernel_size, strides, padding, shape, features):
    images, kernel = draw(shape, kernel_size, features)
    patches, lax = (
        jax.jit(
            lambda x, k, implementation=implementation: result_and_gradients(
                lambda x, k: convolve(x, k, strides, padding, implementation), x, k
            )
        )(images, kernel)
        for implementation in ("patches", "lax")
    )
    chex.assert_trees_all_close(patches, lax, rtol=1e-5, atol=1e-5)
    assert patches[0].shape == (shape[0], *output_size(shape[1:3], kernel_size, strides, padding), features)


@pytest.mark.parametrize("implementation", ["patches", "lax"])
@pytest.mark.parametrize("over_workers", [jax.vmap, lambda f: lambda *xs: jax.lax.map(lambda x: f(*x), xs)])
def test_each_worker_uses_its_own_kernel(implementation, over_workers):
    images, kernels = draw((2, 9, 8, 3), (3, 3), 4, lead=(3,))

    def one_worker(x, k):
        return result_and_gradients(lambda x, k: convolve(x, k, (2, 2), "SAME", implementation), x, k)

    one_worker = jax.jit(one_worker)
    together = jax.jit(over_workers(one_worker))(images, kernels)
    for worker in range(3):
        alone = one_worker(images[worker], kernels[worker])
        chex.assert_trees_all_close(jax.tree.map(lambda x, w=worker: x[w], together), alone, rtol=1e-4, atol=1e-5)


def test_equals_flax():
    images, kernel = draw((2, 11, 12, 3), (3, 3), 4)
    flax = nn.Conv(4, (3, 3), (2, 2), "SAME", use_bias=False).apply({"params": {"kernel": kernel}}, images)
    np.testing.assert_allclose(convolve(images, kernel, (2, 2), "SAME", "patches"), flax, atol=1e-5)


def test_wrong_channels_are_refused():
    with pytest.raises(AssertionError):
        convolve(jnp.zeros((1, 5, 5, 3)), jnp.zeros((3, 3, 4, 2)))


def test_byte_images_are_cast():
    images = jnp.asarray(np.random.default_rng(0).integers(0, 256, (2, 6, 7, 3)), jnp.uint8)
    kernel = jnp.full((3, 3, 3, 2), 0.25)
    floats = convolve(images.astype(jnp.float32), kernel, (2, 2), "SAME", "lax")
    for implementation in ("patches", "lax"):
        np.testing.assert_allclose(convolve(images, kernel, (2, 2), "SAME", implementation), floats, rtol=1e-5)


def test_output_size_of_a_frame_smaller_than_the_kernel_is_zero():
    assert output_size((2, 9), (3, 3), (1, 2), "VALID") == (0, 4)
