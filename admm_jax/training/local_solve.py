"""K optimiser steps on the local problems, in the two orders that rules need.

Rules that meet once per round let every worker do all its steps at a time (its parameters and moments stay in cache);
synchronous rules take each step with all workers. Both orders are made of the same two functions of one worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from admm_jax.consensus import Reduction, Rule, Shared, Workers
from admm_jax.parallel import Mapping, map_workers
from admm_jax.rl.advantages import normalize
from admm_jax.rl.losses import Loss, LossMetrics, Minibatch
from admm_jax.training.optimizer import adam_direction, clip_by_global_norm
from admm_jax.training.state import Adam


class StepMetrics(NamedTuple):
    """Of one optimiser step: those of the loss, and the norm of its gradient before clipping."""

    loss: LossMetrics
    gradient_norm: jax.Array


class LocalProblem(NamedTuple):
    """What a local step needs besides data.

    Attributes:
        apply: network, (parameters, observation [B, *obs]) -> (logits [B, A], value [B]).
        loss: of a minibatch.
        rule: the consensus rule.
        max_grad_norm, adam_eps: see the config.
        normalize_minibatch: give each minibatch's advantages mean 0 and deviation 1.
    """

    apply: Callable
    loss: Loss
    rule: Rule
    max_grad_norm: float
    adam_eps: float
    normalize_minibatch: bool

    def gradient(self, theta: Any, batch: Minibatch) -> tuple[Any, LossMetrics]:
        """Gradient of one worker's loss on one minibatch."""
        if self.normalize_minibatch:
            batch = batch._replace(advantage=normalize(batch.advantage, batch.valid))

        def objective(theta: Any) -> tuple[jax.Array, LossMetrics]:
            logits, value = self.apply(theta, batch.observation)
            return self.loss(logits, value, batch)

        return jax.grad(objective, has_aux=True)(theta)

    def descend(
        self,
        theta: Any,
        adam: Adam,
        grads: Any,
        worker: Workers,
        shared: Shared,
        lr: jax.Array,
        strength: jax.Array,
    ) -> tuple[Any, Adam, jax.Array]:
        """One worker's step: clip the loss's gradient (alone), Adam, pull."""
        grads, norm = clip_by_global_norm(grads, self.max_grad_norm)
        grads = self.rule.gradient(grads, theta, worker, shared)
        direction, adam = adam_direction(grads, adam, self.adam_eps)
        theta = jax.tree.map(lambda x, d: x - lr * d, theta, direction)
        return self.rule.pull(theta, worker, shared, strength), adam, norm


def minibatch_indices(keys: jax.Array, epochs: int, minibatches: int, batch: int) -> jax.Array:
    """A fresh permutation of the batch for each worker and epoch, cut up.

    Args:
        keys: one per worker, [W].
        epochs, minibatches: of each rollout.
        batch: B = T x E, a multiple of ``minibatches``.

    Returns:
        int32 [W, epochs x minibatches, B / minibatches].
    """

    def one(key: jax.Array) -> jax.Array:
        order = jax.vmap(lambda k: jax.random.permutation(k, batch))(jax.random.split(key, epochs))
        return order.reshape(epochs * minibatches, batch // minibatches)

    return jax.vmap(one)(keys)


def solve_locally(
    problem: LocalProblem,
    theta: Any,
    adam: Adam,
    workers: Workers,
    shared: Shared,
    data: Minibatch,
    indices: jax.Array,
    *,
    lr: jax.Array,
    strength: jax.Array,
    mapping: Mapping,
    reduction: Reduction,
) -> tuple[Any, Adam, StepMetrics]:
    """All optimiser steps after one rollout.

    Args:
        theta, adam: trees of the network, leaves [W, ...].
        workers, shared: the consensus as such trees.
        data: leaves [W, B, ...].
        indices: int32 [W, steps, minibatch].
        lr, strength: scalars, the learning rate and c of the pull.
        mapping: how workers share the device.
        reduction: collectives, for synchronous rules.

    Returns:
        theta, Adam's state, and metrics averaged over the steps, leaves [W].
    """

    def take(data: Minibatch, index: jax.Array) -> Minibatch:
        return jax.tree.map(lambda leaf: leaf[index], data)

    if problem.rule.synchronous:
        everyone = jnp.ones_like(workers.weight, dtype=bool)

        def joint_step(carry: tuple[Any, Adam], index: jax.Array) -> tuple[tuple[Any, Adam], StepMetrics]:
            theta, adam = carry
            grads, metrics = map_workers(
                lambda theta, data, index: problem.gradient(theta, take(data, index)), mapping
            )(theta, data, index)
            grads = problem.rule.average_gradients(grads, workers.weight, everyone, reduction)
            theta, adam, norm = jax.vmap(
                lambda theta, adam, grads, worker: problem.descend(theta, adam, grads, worker, shared, lr, strength)
            )(theta, adam, grads, workers)
            return (theta, adam), StepMetrics(metrics, norm)

        (theta, adam), metrics = jax.lax.scan(joint_step, (theta, adam), jnp.swapaxes(indices, 0, 1))
        return theta, adam, jax.tree.map(lambda x: x.mean(axis=0), metrics)

    def solve_one(
        theta: Any, adam: Adam, worker: Workers, data: Minibatch, indices: jax.Array
    ) -> tuple[Any, Adam, StepMetrics]:
        def step(carry: tuple[Any, Adam], index: jax.Array) -> tuple[tuple[Any, Adam], StepMetrics]:
            theta, adam = carry
            grads, metrics = problem.gradient(theta, take(data, index))
            theta, adam, norm = problem.descend(theta, adam, grads, worker, shared, lr, strength)
            return (theta, adam), StepMetrics(metrics, norm)

        (theta, adam), metrics = jax.lax.scan(step, (theta, adam), indices)
        return theta, adam, jax.tree.map(lambda x: x.mean(axis=0), metrics)

    return map_workers(solve_one, mapping)(theta, adam, workers, data, indices)
