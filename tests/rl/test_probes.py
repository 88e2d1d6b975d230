"""The probes' known values are those of their best policy, counted out step by step."""

import gymnax
import jax
import numpy as np
import pytest

from tests.probes import PROBES, register_probes

GAMMA = 0.9


def discounted_return(name, action_of, key):
    """First observation, and the return from it when a time limit never strikes (or after 400 steps)."""
    env, params = gymnax.make(name)
    params = params.replace(max_steps_in_episode=400)
    observation, state = env.reset(key, params)
    first, total, discount, done = np.asarray(observation), 0.0, 1.0, False
    for step in range(400):
        key = jax.random.fold_in(key, step)
        action = action_of(np.asarray(observation))
        observation, state, reward, terminated, truncated, _ = env.step(key, state, action, params)
        total, discount, done = total + discount * float(reward), discount * GAMMA, bool(terminated or truncated)
        if done or discount < 1e-6:
            break
    return first, total


def lookup(known, observation):
    (match,) = [entry for entry in known if np.array_equal(entry[0], observation)]
    return match


def test_registering_twice_changes_nothing():
    names = register_probes()
    before = list(gymnax.registered_envs)
    assert register_probes() == names
    assert gymnax.registered_envs == before
    assert all(name.startswith("Probe") and name.endswith("-test") for name in names)


@pytest.mark.parametrize("name", PROBES)
def test_known_values(name):
    register_probes()
    known = PROBES[name].known(GAMMA)
    seen = set()
    for seed in range(6):
        first, value = discounted_return(name, lambda x: lookup(known, x)[2] or 0, jax.random.key(seed))
        np.testing.assert_allclose(value, lookup(known, first)[1], atol=1e-4)
        seen.add(first.item())
    starts = 1 if name == "ProbeTwoSteps-test" else len(known)
    assert len(seen) == starts


@pytest.mark.parametrize("name", ["ProbeBandit-test", "ProbeMatch-test"])
def test_the_wrong_action_loses(name):
    register_probes()
    known = PROBES[name].known(GAMMA)
    _, value = discounted_return(name, lambda x: 1 - lookup(known, x)[2], jax.random.key(0))
    assert value == -1


def test_the_time_limit_truncates_and_never_terminates():
    register_probes()
    env, params = gymnax.make("ProbeTimeLimit-test")
    _, state = env.reset(jax.random.key(0), params)
    flags = []
    for step in range(8):
        _, state, _, terminated, truncated, _ = env.step(jax.random.key(step), state, 0, params)
        flags.append((bool(terminated), bool(truncated)))
    assert flags == ([(False, False)] * 3 + [(False, True)]) * 2
