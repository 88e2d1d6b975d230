"""A two-dimensional convolution as patches times a matrix.

On CPU a ``lax.conv`` with one kernel per worker (a vmapped kernel) turns into a grouped convolution for which XLA has
no fast code, and its gradient with respect to the kernel is slow even without the worker axis. A matrix product is
fast in both cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import chex
import jax.numpy as jnp
from jax import lax

Padding = Literal["SAME", "VALID"]


def output_size(size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], padding: Padding) -> tuple[int, ...]:
    """Height and width of the convolution's result, for images of height and width ``size``."""
    padded = [length + sum(pad) for length, pad in zip(size, _pads(size, kernel, strides, padding), strict=True)]
    return tuple(
        max(0, (length - window) // stride + 1) for length, window, stride in zip(padded, kernel, strides, strict=True)
    )


def extract_patches(
    images: chex.Array, kernel_size: Sequence[int], strides: Sequence[int], padding: Padding
) -> chex.Array:
    """The window under every output position, flattened in the order (row, column, channel).

    images [B, height, width, channels] -> [B, out height, out width, kh * kw * channels], same dtype.
    """
    chex.assert_rank(images, 4)
    size, channels = images.shape[1:3], images.shape[3]
    (rows, columns) = output_size(size, kernel_size, strides, padding)
    pads = _pads(size, kernel_size, strides, padding)
    images = lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), *((*pad, 0) for pad in pads), (0, 0, 0)])
    windows = [
        lax.slice(
            images,
            (0, row, column, 0),
            (images.shape[0], row + (rows - 1) * strides[0] + 1, column + (columns - 1) * strides[1] + 1, channels),
            (1, *strides, 1),
        )
        for row in range(kernel_size[0])
        for column in range(kernel_size[1])
    ]
    return jnp.concatenate(windows, axis=-1)


def convolve(
    images: chex.Array,
    kernel: chex.Array,
    strides: Sequence[int] = (1, 1),
    padding: Padding = "SAME",
    implementation: Literal["patches", "lax"] = "patches",
) -> chex.Array:
    """Cross-correlation of images with a kernel, as ``flax.linen.Conv`` computes it (without the bias).

    Args:
        images: [B, height, width, channels in] float.
        kernel: [kh, kw, channels in, channels out] float.
        strides: (vertical, horizontal), in pixels.
        padding: "SAME" (zeros; output of size ceil(size / stride)) or "VALID".
        implementation: "patches" or "lax" (``lax.conv_general_dilated``): the same numbers to rounding.

    Returns:
        [B, out height, out width, channels out] float.

    Raises:
        AssertionError: ranks, channels or dtypes disagree.
    """
    chex.assert_rank([images, kernel], 4)
    chex.assert_type([images, kernel], float)
    chex.assert_axis_dimension(images, 3, kernel.shape[2])
    if implementation == "lax":
        return lax.conv_general_dilated(
            images, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    patches = extract_patches(images, kernel.shape[:2], strides, padding)
    return patches @ kernel.reshape(-1, kernel.shape[-1])


def _pads(
    size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], padding: Padding
) -> list[tuple[int, int]]:
    return lax.padtype_to_pads(size, kernel, strides, padding)
