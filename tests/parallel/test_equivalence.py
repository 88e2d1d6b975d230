"""The same fifty rounds as a NumPy loop, mapped, vmapped, and on 2, 4 and 8 devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import ADMM, ConsensusState, local_step
from admm_jax.parallel import REPLICATED, SHARDED, MeshReduction, WorkerMesh, map_workers
from tests.compilations import Compilations

WORKERS, DIM, ROUNDS, STEPS, LR, RHO, ALPHA = 8, 5, 50, 7, 0.04, 0.7, 1.3


def problem():
    rng = np.random.default_rng(2)
    return rng.uniform(0.5, 3, size=(WORKERS, DIM)), rng.normal(size=(WORKERS, DIM)) * 4, rng.uniform(0.5, 2, WORKERS)


def numpy_loop():
    """Proximal inner solves written out, without any of the package's code."""
    curvature, centre, weight = problem()
    z, dual = np.zeros(DIM), np.zeros((WORKERS, DIM))
    history = []
    for _ in range(ROUNDS):
        theta = np.tile(z, (WORKERS, 1))
        for worker in range(WORKERS):
            for _ in range(STEPS):
                moved = theta[worker] - LR * curvature[worker] * (theta[worker] - centre[worker])
                theta[worker] = (moved + LR * RHO * (z - dual[worker])) / (1 + LR * RHO)
        relaxed = ALPHA * theta + (1 - ALPHA) * z
        z = np.average(relaxed + dual, axis=0, weights=weight)
        dual = dual + relaxed - z
        history.append(z)
    return np.array(history), dual


def compiled(devices, mapping):
    curvature, centre, weight = (jnp.array(x, jnp.float32) for x in problem())
    mesh, rule = WorkerMesh(WORKERS, devices), ADMM(inner="proximal", over_relaxation=ALPHA)

    def solve(worker, curvature, centre, shared):
        theta = rule.start(worker, shared)
        for _ in range(STEPS):
            grads = curvature * (theta - centre)
            theta = local_step(rule, theta, grads, worker, shared, lambda x, g: x - LR * g, jnp.float32(LR * RHO))
        return theta

    def one_round(state, curvature, centre):
        theta = map_workers(lambda *one: solve(*one, state.shared), mapping)(state.workers, curvature, centre)
        everyone = jnp.ones_like(state.workers.weight, dtype=bool)
        return rule.exchange(theta, state, participates=everyone, reduction=MeshReduction())

    specs = ConsensusState(REPLICATED, SHARDED)
    step = jax.jit(mesh.on_every_device(one_round, (specs, SHARDED, SHARDED), (specs, REPLICATED)))
    state = mesh.place(rule.init(jnp.zeros(DIM), WORKERS, penalty=RHO, weights=weight), specs)
    curvature, centre = mesh.place((curvature, centre), SHARDED)
    state, _ = step(state, curvature, centre)
    history = [np.asarray(state.shared.z)]
    with Compilations() as later:
        for _ in range(ROUNDS - 1):
            state, _ = step(state, curvature, centre)
            history.append(np.asarray(state.shared.z))
    assert later.count == 0
    return np.array(history), state.workers.scaled_dual


@pytest.mark.parametrize(("devices", "mapping"), [(1, "map"), (1, "vmap"), (2, "vmap"), (4, "map"), (8, "vmap")])
def test_fifty_rounds_on_quadratics(devices, mapping):
    expected_z, expected_dual = numpy_loop()
    z, dual = compiled(devices, mapping)
    np.testing.assert_allclose(z, expected_z, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(dual, expected_dual, atol=1e-5, rtol=1e-5)
