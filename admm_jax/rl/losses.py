"""Policy-gradient losses over a minibatch of B steps, some of which may be no transition at all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import chex
import jax
import jax.numpy as jnp

from admm_jax.errors import InvalidInput
from admm_jax.rl import distributions


class Minibatch(NamedTuple):
    """B steps to learn from; every field has the leading axis B. Invalid steps may hold anything, NaN included.

    Attributes:
        observation: [B, *obs], as the network takes it; the losses never read it.
        action: [B] integer in [0, A).
        log_prob: [B] float, log pi(action) under the policy that acted, in nats.
        value: [B] float, V(observation) at the time of acting, unit of the reward.
        advantage: [B] float, as it enters the loss (normalised beforehand if it is to be).
        target: [B] float, what the value should become, unit of the reward.
        valid: [B] bool, false where the step was no transition.
    """

    observation: chex.ArrayTree
    action: chex.Array
    log_prob: chex.Array
    value: chex.Array
    advantage: chex.Array
    target: chex.Array
    valid: chex.Array


class LossMetrics(NamedTuple):
    """Means over the valid steps, each of shape []; all 0 for a minibatch without one.

    Attributes:
        policy_loss: the surrogate alone.
        value_loss: half the squared error, before its weight, unit of the reward squared.
        entropy: of the current policy, in nats.
        approx_kl: mean of (ratio - 1) - log ratio, an estimate of KL(behaviour || current) that is never negative.
        clip_fraction: share of steps whose ratio lies outside 1 +- clip; 0 for a loss that does not clip.
    """

    policy_loss: chex.Array
    value_loss: chex.Array
    entropy: chex.Array
    approx_kl: chex.Array
    clip_fraction: chex.Array


Loss = Callable[[chex.Array, chex.Array, Minibatch], tuple[chex.Array, LossMetrics]]
"""(logits [B, A], value [B], batch) -> (loss [], metrics)."""


def ppo_loss(
    logits: chex.Array,
    value: chex.Array,
    batch: Minibatch,
    *,
    clip: chex.Numeric,
    value_weight: chex.Numeric,
    entropy_weight: chex.Numeric,
    clip_value: bool,
) -> tuple[chex.Array, LossMetrics]:
    """Proximal policy optimisation with a clipped ratio.

    loss = -mean min(ratio A, clip(ratio, 1 - clip, 1 + clip) A) + value_weight value_loss - entropy_weight entropy,
    ratio = pi(action) / pi_behaviour(action) (Schulman et al. 2017, "Proximal policy optimization algorithms", eq. 7
    and 9).

    With ``clip_value`` the value loss of a step is the larger of that of V and that of V kept within ``clip`` of its
    old value (not in the paper; from its authors' code). The bound is then in the unit of the reward.

    Args:
        logits: [B, A] float of the current policy.
        value: [B] float of the current value function.
        batch: B steps.
        clip: half width of the interval around ratio 1, above 0.
        value_weight: at least 0, per squared unit of reward.
        entropy_weight: at least 0, per nat.
        clip_value: whether to clip the value's step too.

    Returns:
        loss [] and its metrics; loss 0 with zero gradients if no step is valid.

    Raises:
        AssertionError: shapes or dtypes disagree.
    """
    logits, value, batch = _without_invalid(logits, value, batch)
    log_ratio = distributions.log_prob(logits, batch.action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    policy_loss = -masked_mean(jnp.minimum(ratio * batch.advantage, clipped * batch.advantage), batch.valid)

    error = jnp.square(value - batch.target)
    if clip_value:
        near_old_value = batch.value + jnp.clip(value - batch.value, -clip, clip)
        error = jnp.maximum(error, jnp.square(near_old_value - batch.target))
    value_loss = 0.5 * masked_mean(error, batch.valid)

    entropy = masked_mean(distributions.entropy(logits), batch.valid)
    metrics = LossMetrics(
        policy_loss=policy_loss,
        value_loss=value_loss,
        entropy=entropy,
        approx_kl=masked_mean((ratio - 1) - log_ratio, batch.valid),
        clip_fraction=masked_mean(jnp.abs(ratio - 1) > clip, batch.valid),
    )
    return policy_loss + value_weight * value_loss - entropy_weight * entropy, _constant(metrics)


def a2c_loss(
    logits: chex.Array,
    value: chex.Array,
    batch: Minibatch,
    *,
    value_weight: chex.Numeric,
    entropy_weight: chex.Numeric,
) -> tuple[chex.Array, LossMetrics]:
    """Advantage actor-critic.

    loss = -mean log pi(action) A + value_weight value_loss - entropy_weight entropy
    (Mnih et al. 2016, "Asynchronous methods for deep reinforcement learning", section 4 and algorithm S3; means in
    place of its sums).

    Args:
        logits: [B, A] float of the current policy.
        value: [B] float of the current value function.
        batch: B steps; ``batch.log_prob`` serves the metrics only, ``batch.value`` nothing.
        value_weight: at least 0, per squared unit of reward.
        entropy_weight: at least 0, per nat.

    Returns:
        loss [] and its metrics; loss 0 with zero gradients if no step is valid.

    Raises:
        AssertionError: shapes or dtypes disagree.
    """
    logits, value, batch = _without_invalid(logits, value, batch)
    log_prob = distributions.log_prob(logits, batch.action)
    policy_loss = -masked_mean(log_prob * batch.advantage, batch.valid)
    value_loss = 0.5 * masked_mean(jnp.square(value - batch.target), batch.valid)
    entropy = masked_mean(distributions.entropy(logits), batch.valid)
    log_ratio = log_prob - batch.log_prob
    metrics = LossMetrics(
        policy_loss=policy_loss,
        value_loss=value_loss,
        entropy=entropy,
        approx_kl=masked_mean(jnp.expm1(log_ratio) - log_ratio, batch.valid),
        clip_fraction=jnp.zeros_like(policy_loss),
    )
    return policy_loss + value_weight * value_loss - entropy_weight * entropy, _constant(metrics)


@dataclasses.dataclass(frozen=True)
class PPOLoss:
    """``ppo_loss`` with its settings; call it with (logits [B, A], value [B], batch).

    Raises:
        InvalidInput: at construction, if ``clip`` is not finite and above 0 or a weight not finite and at least 0.
    """

    clip: float = 0.1
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    clip_value: bool = False

    sequences: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise InvalidInput("clip", self.clip, "a finite number above 0")
        validate_weights(self.value_weight, self.entropy_weight)

    def __call__(self, logits: chex.Array, value: chex.Array, batch: Minibatch) -> tuple[chex.Array, LossMetrics]:
        return ppo_loss(logits, value, batch, **dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class A2CLoss:
    """``a2c_loss`` with its settings; call it with (logits [B, A], value [B], batch).

    Raises:
        InvalidInput: at construction, if a weight is not finite and at least 0.
    """

    value_weight: float = 0.5
    entropy_weight: float = 0.01

    sequences: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        validate_weights(self.value_weight, self.entropy_weight)

    def __call__(self, logits: chex.Array, value: chex.Array, batch: Minibatch) -> tuple[chex.Array, LossMetrics]:
        return a2c_loss(logits, value, batch, **dataclasses.asdict(self))


LOSSES: dict[str, type[PPOLoss | A2CLoss]] = {"ppo": PPOLoss, "a2c": A2CLoss}
"""Losses by name; each class holds just the settings that belong to it."""


def validate_weights(value_weight: float, entropy_weight: float) -> None:
    """Raises InvalidInput unless both are finite and at least 0."""
    for field, weight in (("value_weight", value_weight), ("entropy_weight", entropy_weight)):
        if not (math.isfinite(weight) and weight >= 0):
            raise InvalidInput(field, weight, "a finite number, 0 or above")


def _without_invalid(
    logits: chex.Array, value: chex.Array, batch: Minibatch
) -> tuple[chex.Array, chex.Array, Minibatch]:
    """Replaces everything at invalid steps by 0 before it is used.

    Masking the results instead would not do: the gradient of a masked NaN is 0 x NaN = NaN.
    """
    chex.assert_rank([logits, value], [2, 1])
    chex.assert_shape(value, logits.shape[:1])
    chex.assert_equal_shape([value, *batch[1:]])
    chex.assert_type([logits, value, *batch[1:]], [float, float, int, float, float, float, float, bool])
    fields = {name: jnp.where(batch.valid, getattr(batch, name), 0) for name in batch._fields[1:-1]}
    logits = jnp.where(batch.valid[:, None], logits, 0.0)
    return logits, jnp.where(batch.valid, value, 0.0), batch._replace(**fields)


def masked_mean(x: chex.Array, valid: chex.Array) -> chex.Array:
    """Mean over the valid steps; 0 if there is none."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def _constant(metrics: LossMetrics) -> LossMetrics:
    return jax.tree.map(jax.lax.stop_gradient, metrics)
