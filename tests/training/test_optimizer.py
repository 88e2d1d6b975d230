"""Adam by hand, clipping, and the schedule."""

import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.training.optimizer import Schedule, adam_direction, clip_by_global_norm, metric
from admm_jax.training.state import Adam


def test_two_steps_of_adam_by_hand():
    state = Adam(jnp.zeros((), jnp.int32), jnp.zeros(2), jnp.zeros(2))
    first, second = np.array([0.3, -2.0]), np.array([0.1, 1.0])
    _, state = adam_direction(jnp.array(first), state, 1e-2)
    direction, state = adam_direction(jnp.array(second), state, 1e-2)
    mu = 0.9 * 0.1 * first + 0.1 * second
    nu = 0.999 * 0.001 * first**2 + 0.001 * second**2
    denominator = np.sqrt(nu / (1 - 0.999**2)) + 1e-2
    np.testing.assert_allclose(direction, mu / (1 - 0.9**2) / denominator, rtol=1e-4)
    np.testing.assert_allclose(metric(state.count, state.nu, 1e-2), denominator, rtol=1e-4)
    assert int(state.count) == 2


@pytest.mark.parametrize(("limit", "expected"), [(10.0, [3.0, 4.0]), (1.0, [0.6, 0.8])])
def test_clipping_keeps_the_direction(limit, expected):
    clipped, norm = clip_by_global_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])}, limit)
    np.testing.assert_allclose([clipped["a"][0], clipped["b"][0]], expected, rtol=1e-6)
    assert float(norm) == pytest.approx(5)


def test_clipping_a_zero_gradient():
    clipped, _ = clip_by_global_norm(jnp.zeros(3), 0.5)
    np.testing.assert_array_equal(clipped, 0)


@pytest.mark.parametrize(
    ("steps", "expected"), [(0, 0.4), (200, 0.4), (400, 0.34), (700, 0.25), (1200, 0.1), (5000, 0.1)]
)
def test_schedule_holds_falls_and_stays(steps, expected):
    schedule = Schedule(0.4, start=200, end=1200, lr_end=0.1)
    assert float(schedule(jnp.asarray(steps))) == pytest.approx(expected)


def test_a_schedule_to_nothing():
    assert float(Schedule(0.4, end=1000)(jnp.asarray(250))) == pytest.approx(0.3)
    assert float(Schedule(0.4, end=1000)(jnp.asarray(1000))) == 0


def test_no_annealing():
    assert float(Schedule(0.4)(jnp.asarray(10**6))) == pytest.approx(0.4)
