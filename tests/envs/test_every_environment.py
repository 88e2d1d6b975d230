"""Properties that every source of environments shares, each checked on every adapter."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax import envs
from admm_jax.envs.gymnax_adapter import GymnaxEnvironment
from admm_jax.envs.jax_pong import JaxPong, JaxPongPixels

NUM_ENVS = 4
STEPS = 48


def short(env, params, name):
    """A gymnax environment with episodes of at most 7 steps."""
    return GymnaxEnvironment(env, params.replace(max_steps_in_episode=7), NUM_ENVS, name=name)


def gymnax_env(name):
    import gymnax

    return short(*gymnax.make(name), f"gymnax:{name}")


def own_env(env):
    return short(env, env.default_params, env.name)


def short_pong(backend):
    """EnvPool Pong whose games are cut off after 7 steps."""
    import admm_jax.envs.envpool_adapter as adapter

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(adapter._ATARI, "max_episode_steps", 7)
        return envs.make("Pong-v5", num_envs=NUM_ENVS, backend=backend)


MAKERS = {
    "cartpole": lambda: gymnax_env("CartPole-v1"),
    "minatar": lambda: gymnax_env("Breakout-MinAtar"),
    "one-hot": lambda: gymnax_env("FrozenLake-misc"),
    "jax-pong": lambda: own_env(JaxPong()),
    "jax-pong-pixels": lambda: own_env(JaxPongPixels()),
    "envpool-xla": lambda: short_pong("xla"),
    "envpool-host": lambda: short_pong("host"),
}


@functools.cache
def environment(name):
    """One instance for all tests; not for EnvPool, whose every reset starts new games."""
    return MAKERS[name]()


def fresh(name):
    """An environment that starts from its seed."""
    if name.startswith("envpool"):
        pytest.importorskip("envpool")
        return MAKERS[name]()
    return environment(name)


@functools.cache
def compiled_scan(env):
    def body(state, inputs):
        action, key = inputs
        return env.step(state, action, jax.random.split(key, NUM_ENVS))

    return jax.jit(lambda state, actions, keys: jax.lax.scan(body, state, (actions, keys)))


def roll(env, actions):
    """reset, then one compiled scan over actions [T, N]: time steps with a leading axis [T + 1]."""
    state, first = env.reset(jax.random.split(jax.random.key(0), NUM_ENVS))
    _, rest = compiled_scan(env)(state, actions, jax.random.split(jax.random.key(1), STEPS))
    return jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], np.asarray(b)]), first, rest)


def random_actions(env):
    return jax.random.randint(jax.random.key(3), (STEPS, NUM_ENVS), 0, env.spec.num_actions)


@pytest.fixture(params=MAKERS, scope="module")
def played(request):
    env = fresh(request.param)
    return env, roll(env, random_actions(env))


def test_follows_the_interface(played):
    env, _ = played
    assert isinstance(env, envs.Environment)
    assert env.num_envs == NUM_ENVS


def test_shapes_and_dtypes_are_those_of_the_spec(played):
    env, steps = played
    assert steps.observation.shape == (STEPS + 1, NUM_ENVS, *env.spec.observation_shape)
    assert steps.observation.dtype == env.spec.observation_dtype
    assert steps.reward.dtype == np.float32
    for name in ("terminated", "truncated", "valid"):
        assert getattr(steps, name).dtype == bool
    for value in (steps.reward, steps.terminated, steps.truncated, steps.valid):
        assert value.shape == (STEPS + 1, NUM_ENVS)


def test_calls_that_reset_are_no_transitions(played):
    _, steps = played
    done = steps.terminated | steps.truncated
    assert done.any()
    np.testing.assert_array_equal(steps.valid[0], np.zeros(NUM_ENVS, bool))
    np.testing.assert_array_equal(steps.valid[1:], ~done[:-1])
    assert not steps.reward[~steps.valid].any()
    assert not done[~steps.valid].any()


def test_state_shards_over_devices(played):
    env, _ = played
    state, _ = env.reset(jax.random.split(jax.random.key(0), NUM_ENVS))
    leading = {leaf.shape[0] for leaf in jax.tree.leaves(state)}
    assert leading <= {NUM_ENVS, 1}


@pytest.mark.parametrize("name", MAKERS)
def test_action_of_a_resetting_call_is_ignored(name):
    env = fresh(name)
    actions = random_actions(env)
    played = roll(env, actions)
    changed = jnp.where(played.valid[1:], actions, (actions + 1) % env.spec.num_actions)
    assert (changed != actions).any()
    again = roll(fresh(name), changed)
    jax.tree.map(np.testing.assert_array_equal, played, again)


@pytest.mark.parametrize("name", ["cartpole", "minatar", "jax-pong", "jax-pong-pixels"])
def test_environments_have_streams_of_their_own(name):
    steps = roll(environment(name), jnp.zeros((STEPS, NUM_ENVS), jnp.int32))
    observations = steps.observation.swapaxes(0, 1).reshape(NUM_ENVS, -1)
    assert len(np.unique(observations, axis=0)) == NUM_ENVS


def test_second_compiled_step_does_not_compile_again():
    env = environment("cartpole")
    step = jax.jit(env.step)
    keys = jax.random.split(jax.random.key(0), NUM_ENVS)
    state, _ = env.reset(keys)
    for _ in range(3):
        state, _ = step(state, jnp.zeros(NUM_ENVS, jnp.int32), keys)
    assert step._cache_size() == 1
