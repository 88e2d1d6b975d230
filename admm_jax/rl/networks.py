"""Actor-critic networks: (logits [B, A], value [B]) from a batch of observations [B, *obs]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import chex
import jax
import jax.numpy as jnp
from flax import linen as nn

from admm_jax.errors import InvalidInput, nearest
from admm_jax.rl import observations
from admm_jax.rl.convolution import (
    Padding,
    convolve,
    convolve_batch_last,
    output_size,
    to_batch_first,
    to_batch_last,
)

Kind = Literal["article", "nature", "mlp"]
Implementation = Literal["auto", "patches", "lax"]

# Orthogonal weights keep the norm of signals through depth (Saxe et al. 2014, "Exact solutions to the nonlinear
# dynamics of learning in deep linear neural networks"); the small policy gain starts close to uniform actions.
HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN = math.sqrt(2), 0.01, 1.0


# (kernel size, strides) of each convolution.
ARTICLE_LAYERS = (((3, 3), (2, 2)), ((3, 3), (2, 2)))
NATURE_LAYERS = (((8, 8), (4, 4)), ((4, 4), (2, 2)), ((3, 3), (1, 1)))


class ArticleNetwork(nn.Module):
    """Two 3x3 convolutions with stride 2, dense layers, and a head each for policy and value.

    Observation [B, height, width, channels] of any size; uint8 is scaled by 1/255, int8 (a normalised image) by
    ``observations.BYTE_STEP``.

    Attributes:
        num_actions: A.
        channels: of the two convolutions.
        hidden: width of each dense layer behind them.
        implementation: of the convolutions, see ``make_network``.

    Raises:
        InvalidInput: the observation is no image.
    """

    num_actions: int
    channels: tuple[int, int] = (32, 32)
    hidden: tuple[int, ...] = (256,)
    implementation: Implementation = "auto"

    def check(self, observation_shape: Sequence[int]) -> None:
        """Raises InvalidInput unless ``observation_shape`` (without the batch axis) is (height, width, channels)."""
        _require_image(observation_shape, "article")

    @nn.compact
    def __call__(self, observation: chex.Array) -> tuple[chex.Array, chex.Array]:
        self.check(observation.shape[1:])
        x = _convolutions(observation, self.channels, ARTICLE_LAYERS, "SAME", self.implementation)
        return _heads(_dense_layers(x, self.hidden, nn.relu), self.num_actions)


class NatureNetwork(nn.Module):
    """Three convolutions 8x8/4, 4x4/2, 3x3/1 without padding, a dense layer, and a head each for policy and value.

    The network of Mnih et al. 2015, "Human-level control through deep reinforcement learning", with the heads of an
    actor-critic. Observation [B, height, width, channels] of at least 36 x 36 pixels; bytes are scaled as by the
    article's network.

    Attributes:
        num_actions: A.
        channels: of the three convolutions.
        hidden: width of each dense layer behind them.
        implementation: of the convolutions, see ``make_network``.

    Raises:
        InvalidInput: the observation is no image, or too small to leave a pixel after the last convolution.
    """

    num_actions: int
    channels: tuple[int, int, int] = (32, 64, 64)
    hidden: tuple[int, ...] = (512,)
    implementation: Implementation = "auto"

    def check(self, observation_shape: Sequence[int]) -> None:
        """Raises InvalidInput unless ``observation_shape`` is (height >= 36, width >= 36, channels)."""
        _require_image(observation_shape, "nature")
        size = observation_shape[:2]
        for kernel, strides in NATURE_LAYERS:
            size = output_size(size, kernel, strides, "VALID")
        if min(size) < 1:
            raise InvalidInput(
                "observation_shape",
                tuple(observation_shape),
                "at least 36 x 36 pixels for the network 'nature' (use 'article' for smaller frames)",
            )

    @nn.compact
    def __call__(self, observation: chex.Array) -> tuple[chex.Array, chex.Array]:
        self.check(observation.shape[1:])
        x = _convolutions(observation, self.channels, NATURE_LAYERS, "VALID", self.implementation)
        return _heads(_dense_layers(x, self.hidden, nn.relu), self.num_actions)


class MLP(nn.Module):
    """Dense tanh layers for vector observations, in separate towers for policy and value unless ``shared``.

    Separate towers of two layers of 64 are those of Schulman et al. 2017, section 6.1. An observation of any
    rank is flattened; bytes are scaled as by the article's network.

    Attributes:
        num_actions: A.
        hidden: width of each hidden layer.
        shared: whether policy and value share the hidden layers.
    """

    num_actions: int
    hidden: tuple[int, ...] = (64, 64)
    shared: bool = False

    def check(self, observation_shape: Sequence[int]) -> None:
        """Any observation will do."""

    @nn.compact
    def __call__(self, observation: chex.Array) -> tuple[chex.Array, chex.Array]:
        x = observation.astype(jnp.float32) * _scale(observation)
        if self.shared:
            return _heads(_dense_layers(x, self.hidden, nn.tanh, "shared"), self.num_actions)
        policy = _dense_layers(x, self.hidden, nn.tanh, "policy")
        value = _dense_layers(x, self.hidden, nn.tanh, "value")
        return _policy_head(policy, self.num_actions), _value_head(value)


class Convolution(nn.Module):
    """A convolution with bias, its parameters laid out as those of ``flax.linen.Conv``.

    Parameters ``kernel`` [kh, kw, channels in, features] and ``bias`` [features]. With "lax" it maps images
    [B, height, width, channels in] to [B, out height, out width, features]; with "patches" it takes and gives the
    batch last, [channels, height, width, B], so that a stack of convolutions is transposed once and not at
    every layer, which would cost more than the convolution.

    Attributes:
        input_scale: what the images are multiplied by (folded into the kernel, which is smaller than the images).
    """

    features: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int]
    padding: Padding
    implementation: Literal["patches", "lax"]
    input_scale: float = 1.0

    @nn.compact
    def __call__(self, images: chex.Array) -> chex.Array:
        batch_last = self.implementation == "patches"
        shape = (*self.kernel_size, images.shape[0 if batch_last else 3], self.features)
        kernel = self.param("kernel", nn.initializers.orthogonal(HIDDEN_GAIN), shape) * self.input_scale
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        if batch_last:
            return convolve_batch_last(images, kernel, self.strides, self.padding) + bias[:, None, None, None]
        return convolve(images, kernel, self.strides, self.padding, "lax") + bias


def resolve_implementation(implementation: Implementation) -> Literal["patches", "lax"]:
    """ "auto" is "patches" on CPU, where a convolution with per-worker kernels is slow, and "lax" elsewhere."""
    if implementation != "auto":
        return implementation
    return "patches" if jax.default_backend() == "cpu" else "lax"


Network = ArticleNetwork | NatureNetwork | MLP


def make_network(
    kind: Kind,
    num_actions: int,
    *,
    observation_shape: Sequence[int] | None = None,
    channels: Sequence[int] | None = None,
    hidden: Sequence[int] | None = None,
    shared: bool = False,
    implementation: Implementation = "auto",
) -> Network:
    """The network of that name.

    Args:
        kind: "article" (small images), "nature" (images from 36 x 36 pixels) or "mlp" (vectors).
        num_actions: A, at least 1.
        observation_shape: without the batch axis; given, a network that cannot take it is refused here, otherwise
            when it first sees an observation.
        channels: of each convolution: 2 for "article" (default 32, 32), 3 for "nature" (default 32, 64, 64).
        hidden: width of each dense layer; default 256, 512, and 64, 64.
        shared: "mlp" only: one tower for policy and value instead of two.
        implementation: of the convolutions: "patches" (patches times a matrix), "lax" (``lax.conv``), or "auto":
            patches on CPU, lax elsewhere.

    Raises:
        InvalidInput: a setting out of range, unknown, or of another kind of network.
    """
    if kind not in get_args(Kind):
        raise InvalidInput("network", kind, _one_of(kind, get_args(Kind)))
    if implementation not in get_args(Implementation):
        raise InvalidInput("implementation", implementation, _one_of(implementation, get_args(Implementation)))
    if num_actions < 1:
        raise InvalidInput("num_actions", num_actions, "1 or above")
    settings = {}
    if hidden is not None:
        _require_sizes("hidden", hidden)
        settings["hidden"] = tuple(hidden)
    if kind == "mlp":
        if channels is not None:
            raise InvalidInput("channels", channels, "left out with the network 'mlp', which has no convolutions")
        if implementation != "auto":
            raise InvalidInput(
                "implementation", implementation, "'auto' with the network 'mlp', which has no convolutions"
            )
        network = MLP(num_actions, shared=shared, **settings)
    else:
        if shared:
            raise InvalidInput("shared", shared, f"left out with the network {kind!r}, whose layers are shared anyway")
        if channels is not None:
            _require_sizes("channels", channels, 2 if kind == "article" else 3)
            settings["channels"] = tuple(channels)
        image_network = ArticleNetwork if kind == "article" else NatureNetwork
        network = image_network(num_actions, implementation=implementation, **settings)
    if observation_shape is not None:
        network.check(observation_shape)
    return network


def init_parameters(
    network: Network, key: chex.PRNGKey, observation_shape: Sequence[int], observation_dtype: chex.ArrayDType
) -> chex.ArrayTree:
    """Parameters of one network: ``network.apply(parameters, observation)``.

    Call it once, outside vmap, and broadcast the result to the workers (who all start at the same point anyway): the
    orthogonal initialiser is a QR decomposition, and a batched QR under vmap inside jit can hang for ever on CPU, in
    the thread pool of the LAPACK call. Over seeds use a loop or ``lax.map``.

    Args:
        network: from ``make_network``.
        key: a random key.
        observation_shape: without the batch axis.
        observation_dtype: uint8, bool or float.

    Returns:
        A float32 tree ``{"params": ...}``.

    Raises:
        InvalidInput: the network cannot take such observations.
    """
    network.check(observation_shape)
    return network.init(key, jnp.zeros((1, *observation_shape), observation_dtype))


def _scale(observation: chex.Array) -> float:
    if observation.dtype == jnp.int8:  # a normalised image
        return observations.BYTE_STEP
    return 1 / 255 if observation.dtype == jnp.uint8 else 1.0


def _convolutions(
    x: chex.Array,
    channels: Sequence[int],
    layers: Sequence[tuple[tuple[int, int], tuple[int, int]]],
    padding: Padding,
    implementation: Implementation,
) -> chex.Array:
    """A stack of convolutions and ReLUs: images [B, height, width, channels] -> the same with its own sizes."""
    implementation = resolve_implementation(implementation)
    input_scale = _scale(x)
    if implementation == "patches":
        x = to_batch_last(x)
    for features, (kernel_size, strides) in zip(channels, layers, strict=True):
        x = nn.relu(Convolution(features, kernel_size, strides, padding, implementation, input_scale)(x))
        input_scale = 1.0
    return to_batch_first(x) if implementation == "patches" else x


def _dense(features: int, gain: float, name: str) -> nn.Dense:
    return nn.Dense(features, kernel_init=nn.initializers.orthogonal(gain), name=name)


def _dense_layers(x: chex.Array, widths: Sequence[int], activation, name: str = "dense") -> chex.Array:
    x = x.reshape(x.shape[0], -1)
    for layer, width in enumerate(widths):
        x = activation(_dense(width, HIDDEN_GAIN, f"{name}_{layer}")(x))
    return x


def _policy_head(x: chex.Array, num_actions: int) -> chex.Array:
    return _dense(num_actions, POLICY_GAIN, "policy_head")(x)


def _value_head(x: chex.Array) -> chex.Array:
    return _dense(1, VALUE_GAIN, "value_head")(x)[:, 0]


def _heads(x: chex.Array, num_actions: int) -> tuple[chex.Array, chex.Array]:
    return _policy_head(x, num_actions), _value_head(x)


def _require_image(observation_shape: Sequence[int], kind: str) -> None:
    if len(observation_shape) != 3 or min(observation_shape) < 1:
        raise InvalidInput(
            "observation_shape",
            tuple(observation_shape),
            f"(height, width, channels) for the network {kind!r} (use 'mlp' for vectors)",
        )


def _require_sizes(field: str, sizes: Sequence[int], count: int | None = None) -> None:
    if all(isinstance(size, int) and size >= 1 for size in sizes) and count in (None, len(sizes)):
        return
    raise InvalidInput(field, tuple(sizes), f"{'' if count is None else f'{count} '}whole numbers, each 1 or above")


def _one_of(given: object, choices: Sequence[str]) -> str:
    hint = nearest(str(given), choices, 1)
    return f"one of {', '.join(choices)}" + (f" (did you mean {hint[0]}?)" if hint else "")
