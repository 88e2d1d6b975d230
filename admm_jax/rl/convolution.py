"""A two-dimensional convolution as patches times a matrix.

On CPU a ``lax.conv`` with one kernel per worker (a vmapped kernel) becomes a grouped convolution for which XLA has
no fast code, and its gradient with respect to the kernel is slow even without the worker axis. A matrix product is
fast in both cases; what remains is the cost of copying patches, which the layout below keeps low.

Images lie in memory as [channels, height, width, B], the batch last. Every slice, pad and sum of the patch
extraction and of its transpose then runs over contiguous stretches of B numbers, whatever the stride, and the
matrix products contract over contiguous rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import chex
import jax.numpy as jnp
from jax import lax

Padding = Literal["SAME", "VALID"]


def output_size(
    size: Sequence[int], kernel_size: Sequence[int], strides: Sequence[int], padding: Padding
) -> tuple[int, int]:
    """Height and width of the convolution's result, for images of height and width ``size``; 0 if none fits."""
    pads = lax.padtype_to_pads(size, kernel_size, strides, padding)
    height, width = (
        max(0, (length + sum(pad) - window) // stride + 1)
        for length, pad, window, stride in zip(size, pads, kernel_size, strides, strict=True)
    )
    return height, width


def extract_patches(
    images: chex.Array, kernel_size: Sequence[int], strides: Sequence[int], padding: Padding
) -> chex.Array:
    """The window under every output position.

    images [channels, height, width, B] of any dtype -> [kh, kw, channels, out height, out width, B].
    """
    chex.assert_rank(images, 4)
    channels, *size, batch = images.shape
    height, width = output_size(size, kernel_size, strides, padding)
    pads = lax.padtype_to_pads(size, kernel_size, strides, padding)
    images = jnp.pad(images, ((0, 0), *pads, (0, 0)))
    down, right = strides
    windows = [
        lax.slice(
            images,
            (0, row, column, 0),
            (channels, row + (height - 1) * down + 1, column + (width - 1) * right + 1, batch),
            (1, down, right, 1),
        )
        for row in range(kernel_size[0])
        for column in range(kernel_size[1])
    ]
    return jnp.concatenate(windows).reshape(*kernel_size, channels, height, width, batch)


def convolve_batch_last(images: chex.Array, kernel: chex.Array, strides: Sequence[int], padding: Padding) -> chex.Array:
    """``convolve`` by patches, for images [channels in, height, width, B] -> [channels out, out height, out width, B].

    Images may be integers: they are cast after their patches are cut, since bytes are cheaper to copy than floats.
    """
    patches = extract_patches(images, kernel.shape[:2], strides, padding).astype(kernel.dtype)
    matrix = kernel.reshape(-1, kernel.shape[3])
    columns = patches.reshape(matrix.shape[0], -1)
    result = lax.dot_general(matrix, columns, dimension_numbers=(((0,), (0,)), ((), ())))
    return result.reshape(kernel.shape[3], *patches.shape[3:])


def convolve(
    images: chex.Array,
    kernel: chex.Array,
    strides: Sequence[int] = (1, 1),
    padding: Padding = "SAME",
    implementation: Literal["patches", "lax"] = "patches",
) -> chex.Array:
    """Cross-correlation of images with a kernel, as ``flax.linen.Conv`` computes it (without the bias).

    Args:
        images: [B, height, width, channels in], any dtype; cast to that of the kernel.
        kernel: [kh, kw, channels in, channels out] float.
        strides: (vertical, horizontal), in pixels.
        padding: "SAME" (zeros; output of size ceil(size / stride)) or "VALID".
        implementation: "patches" or "lax" (``lax.conv_general_dilated``): the same numbers to rounding.

    Returns:
        [B, out height, out width, channels out], dtype of the kernel.

    Raises:
        AssertionError: ranks, channels or the kernel's dtype disagree with the above.
    """
    chex.assert_rank([images, kernel], 4)
    chex.assert_type(kernel, float)
    chex.assert_axis_dimension(images, 3, kernel.shape[2])
    if implementation == "lax":
        return lax.conv_general_dilated(
            images.astype(kernel.dtype), kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    return to_batch_first(convolve_batch_last(to_batch_last(images), kernel, strides, padding))


def to_batch_last(images: chex.Array) -> chex.Array:
    """[B, height, width, channels] -> [channels, height, width, B]."""
    return images.transpose(3, 1, 2, 0)


def to_batch_first(images: chex.Array) -> chex.Array:
    """[channels, height, width, B] -> [B, height, width, channels]."""
    return images.transpose(3, 1, 2, 0)
