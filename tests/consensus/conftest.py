"""Double precision for tests that compare with closed forms, and a problem of several leaves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ConsensusState, LocalReduction, Residuals, local_step
from admm_jax.consensus.trees import elementwise


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def targets() -> dict[str, np.ndarray]:
    """Three workers' optima on a tree of a matrix, a vector and a scalar; leaves [3, ...]."""
    random = np.random.default_rng(7)
    return {name: random.normal(size=(3, *shape)) for name, shape in {"a": (2, 3), "b": (4,), "c": ()}.items()}


@pytest.fixture
def exchange() -> Callable[..., tuple[ConsensusState, Residuals]]:
    """``exchange(rule, theta, state, participates, healthy=None)``, compiled, with all workers in hand."""
    return _exchange


@functools.partial(jax.jit, static_argnums=0)
def _exchange(
    rule: Any, theta: Any, state: ConsensusState, participates: jax.Array, healthy: jax.Array | None = None
) -> tuple[ConsensusState, Residuals]:
    return rule.exchange(theta, state, participates=participates, reduction=LocalReduction(), healthy=healthy)


@pytest.fixture
def tree_round() -> Callable[..., tuple[ConsensusState, Residuals]]:
    """``run(rule, state, targets, participates)``: a compiled round of f_i = 1.5/2 |theta - target_i|^2 on a tree.

    A worker whose target is NaN fails.
    """
    return _tree_round


@functools.partial(jax.jit, static_argnums=0)
def _tree_round(
    rule: Any, state: ConsensusState, targets: Any, participates: jax.Array
) -> tuple[ConsensusState, Residuals]:
    curvature, lr, steps = 1.5, 0.2, 3
    reduction = LocalReduction()
    shared, workers = state
    targets = jax.tree.map(lambda t, z: jnp.asarray(t, z.dtype), targets, shared.z)
    if getattr(rule, "inner", None) == "exact":
        centre = jax.vmap(rule.centre, (0, None))(workers, shared)
        theta = jax.tree.map(
            lambda t, c, rho: (curvature * t + rho * c) / (curvature + rho),
            targets,
            centre,
            elementwise(shared.penalty, shared.z),
        )
        return rule.exchange(theta, state, participates=participates, reduction=reduction)

    def one_step(theta, grads, worker):
        return local_step(
            rule, theta, grads, worker, shared, lambda x, g: jax.tree.map(lambda a, b: a - lr * b, x, g), 0.15
        )

    theta = jax.vmap(rule.start, (0, None))(workers, shared)
    for _ in range(steps):
        grads = jax.tree.map(lambda x, t: curvature * (x - t), theta, targets)
        grads = rule.average_gradients(grads, workers.weight, participates, reduction)
        theta = jax.vmap(one_step)(theta, grads, workers)
    return rule.exchange(theta, state, participates=participates, reduction=reduction)


@pytest.fixture
def params(targets: dict[str, np.ndarray]) -> Callable[[Any], Any]:
    """A tree like one worker's unknowns, of the given dtype, filled with distinct small numbers."""

    def make(dtype: Any) -> Any:
        leaves, structure = jax.tree.flatten(targets)
        return jax.tree.unflatten(
            structure, [jnp.full(leaf.shape[1:], 0.1 * (k + 1), dtype) for k, leaf in enumerate(leaves)]
        )

    return make
