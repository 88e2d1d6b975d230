"""The scripted server against a loop in NumPy and against cases worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import A3C, STALENESS_EDGES
from admm_jax.errors import InvalidInput

LR = 0.1


def descend(z, grads, count):
    """Plain gradient steps, counted."""
    return jax.tree.map(lambda a, g: a - LR * g, z, grads), count + 1


def tick(rule, pushes, theta, state, order):
    """One compiled tick."""
    step = jax.jit(lambda pushes, theta, state, order: rule.tick(pushes, theta, state, order, descend))
    return step(pushes, theta, state, jnp.asarray(order, jnp.int32))


def quadratic_run(rule, centres, ticks, orders, weights=None):
    """Workers with f_i = |x - c_i|^2 / 2 on scalars; states after each tick and reports."""
    centres = jnp.asarray(centres)
    state = rule.init(jnp.zeros(()), len(centres), optimizer=jnp.int32(0), weights=weights)
    step = jax.jit(lambda pushes, theta, state, order: rule.tick(pushes, theta, state, order, descend))
    states, reports = [], []
    for tick in range(ticks):
        theta = state.workers.theta
        grads = theta - centres
        if rule.push == "delta":
            pushes, theta = -LR * grads, theta - LR * grads
        else:
            pushes = grads
        state, report = step(pushes, theta, state, jnp.asarray(orders[tick % len(orders)], jnp.int32))
        states.append(state)
        reports.append(report)
    return states, reports


def loop(rule, centres, ticks, orders, weights=None):
    """The same in plain Python: (z, theta, versions) after each tick, and numbers of rejected pushes."""
    count = len(centres)
    weights = np.ones(count) if weights is None else np.asarray(weights)
    delays = rule.delays or [0] * count
    z, version = 0.0, 0
    past = [(0.0, 0)]  # (z, version) at the end of each tick, before the first one included
    theta, stamps, pushes = np.zeros(count), np.zeros(count, int), np.zeros(count, int)
    rows, rejections = [], []
    for tick in range(ticks):
        grads = theta - np.asarray(centres)
        moved = theta - LR * grads if rule.push == "delta" else theta
        new_theta, rejected = moved.copy(), 0
        for worker in orders[tick % len(orders)]:
            too_old = rule.max_staleness is not None and version - stamps[worker] > rule.max_staleness
            if too_old:
                rejected += 1
            else:
                z = z - LR * weights[worker] * grads[worker]
                version += 1
            pushes[worker] += 1
            if too_old or pushes[worker] == rule.fetch_every:
                delay = delays[worker]
                found, stamp = (z, version) if delay == 0 else past[max(len(past) - delay, 0)]
                new_theta[worker], stamps[worker], pushes[worker] = found, stamp, 0
        theta = new_theta
        past.append((z, version))
        rows.append((z, theta.copy(), stamps.copy()))
        rejections.append(rejected)
    return rows, rejections


SCRIPTS = {
    "paper": A3C(),
    "soft-sync": A3C(fetch_every=3),
    "delta": A3C(push="delta", fetch_every=2),
    "delays": A3C(delays=(0, 2, 1), history=2),
    "long-history": A3C(delays=(3, 0, 1), history=5, fetch_every=2),
    "rejecting": A3C(delays=(4, 0, 0), history=4, max_staleness=7),
    "rejecting-deltas": A3C(push="delta", fetch_every=4, max_staleness=5),
}
ORDERS = [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)]


@pytest.mark.parametrize("rule", SCRIPTS.values(), ids=SCRIPTS)
def test_every_script_equals_a_loop(rule, x64):
    centres, weights = [1.0, -2.0, 5.0], [0.5, 1.0, 2.0]
    states, reports = quadratic_run(rule, centres, 9, ORDERS, weights)
    rows, rejections = loop(rule, centres, 9, ORDERS, weights)
    for state, report, (z, theta, stamps), rejected in zip(states, reports, rows, rejections, strict=True):
        np.testing.assert_allclose(state.shared.z, z, atol=1e-12)
        np.testing.assert_allclose(state.workers.theta, theta, atol=1e-12)
        np.testing.assert_array_equal(state.workers.version, stamps)
        assert report.rejected == rejected
        assert report.applied == 3 - rejected
        assert report.histogram.sum() == report.applied
    assert states[-1].shared.version == 27 - sum(rejections)
    if rule.push == "gradient":
        assert states[-1].shared.optimizer == 27 - sum(rejections)
    if "rejecting" in next(name for name, script in SCRIPTS.items() if script is rule):
        assert sum(rejections) > 0


def test_two_workers_by_hand(x64):
    # Centres 1 and 3, lr 0.1. Tick 1: both push from 0. Worker 0 fetches 0.1, worker 1 fetches 0.1 + 0.3 = 0.4.
    # Tick 2: worker 0 pushes 0.1 - 1 = -0.9, worker 1 pushes 0.4 - 3 = -2.6.
    states, reports = quadratic_run(A3C(), [1.0, 3.0], 2, [(0, 1)])
    np.testing.assert_allclose(states[0].workers.theta, [0.1, 0.4], atol=1e-12)
    np.testing.assert_allclose(states[1].shared.z, 0.4 + 0.09 + 0.26, atol=1e-12)
    # Worker 1 pushed behind one version it had not seen; in the second tick so do both.
    assert [int(report.staleness) for report in reports] == [1, 2]
    assert reports[1].histogram.tolist() == [0, 2, 0, 0, 0, 0, 0, 0]


def test_one_worker_is_plain_gradient_descent(x64):
    for rule in (A3C(), A3C(push="delta"), A3C(push="delta", fetch_every=4)):
        states, reports = quadratic_run(rule, [2.0], 12, [(0,)])
        np.testing.assert_allclose(states[-1].shared.z, 2 * (1 - 0.9**12), atol=1e-12)
        assert all(report.cosine == 0 for report in reports)


def test_a_push_that_is_not_finite_is_left_out_and_its_worker_fetches():
    rule = A3C(fetch_every=3)
    state = rule.init({"a": jnp.zeros(2)}, 2, optimizer=jnp.int32(0))
    pushes = {"a": jnp.array([[jnp.nan, 1.0], [2.0, -4.0]])}
    state, report = tick(rule, pushes, state.workers.theta, state, [1, 0])
    np.testing.assert_allclose(state.shared.z["a"], [-0.2, 0.4])
    assert (report.failed, report.applied, report.rejected, report.fetches) == (1, 1, 0, 1)
    np.testing.assert_allclose(state.workers.theta["a"][0], state.shared.z["a"])
    np.testing.assert_allclose(state.workers.theta["a"][1], 0)
    assert state.workers.failures.tolist() == [1, 0]
    assert np.isfinite(report.cosine)
    state, report = tick(rule, {"a": jnp.ones((2, 2))}, state.workers.theta, state, [0, 1])
    assert state.workers.failures.tolist() == [0, 0]
    assert state.shared.optimizer == 3


def test_staleness_falls_into_its_bin():
    rule = A3C(fetch_every=100)
    states, reports = quadratic_run(rule, [0.0] * 5, 20, [(0, 1, 2, 3, 4)])
    seen = np.sum([report.histogram for report in reports], axis=0)
    staleness = np.arange(100)  # nobody fetches, every push adds a version
    expected, _ = np.histogram(staleness, bins=[*STALENESS_EDGES, np.inf])
    np.testing.assert_array_equal(seen, expected)
    assert sum(int(report.staleness) for report in reports) == staleness.sum()
    assert states[-1].shared.tick == 20


def test_cosine_between_pushes():
    rule = A3C()
    state = rule.init(jnp.zeros(2), 3, optimizer=jnp.int32(0))
    pushes = jnp.array([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    _, report = tick(rule, pushes, state.workers.theta, state, [0, 1, 2])
    assert report.cosine == pytest.approx(3 / (1 + 3 + 3))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"push": "weights"}, "push"),
        ({"fetch_every": 0}, "fetch_every"),
        ({"delays": (0, -1), "history": 3}, "delays"),
        ({"delays": (0, 4), "history": 3}, "delays"),
        ({"history": -2}, "history"),
        ({"max_staleness": -1}, "max_staleness"),
    ],
)
def test_what_does_not_fit_is_refused(settings, field):
    with pytest.raises(InvalidInput) as caught:
        A3C(**settings)
    assert caught.value.field == field


def test_delays_are_one_per_worker():
    with pytest.raises(InvalidInput, match=r"one per worker \(3\)"):
        A3C(delays=(1, 0), history=1).init(jnp.zeros(2), 3)


def test_gradients_need_an_optimiser():
    rule = A3C()
    state = rule.init(jnp.zeros(2), 1)
    with pytest.raises(TypeError, match="optimiser"):
        rule.tick(jnp.ones((1, 2)), state.workers.theta, state, jnp.arange(1))
