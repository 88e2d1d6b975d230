"""What the gymnax adapter adds to gymnax."""

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces
from jax.sharding import Mesh, PartitionSpec

from admm_jax import envs
from admm_jax.envs.gymnax_adapter import GymnaxEnvironment
from admm_jax.envs.jax_pong import JaxPong
from admm_jax.errors import InvalidInput


def cartpole(limit=500, num_envs=2):
    env, params = gymnax.make("CartPole-v1")
    return GymnaxEnvironment(env, params.replace(max_steps_in_episode=limit), num_envs)


def test_a_time_limit_truncates_and_a_fall_terminates():
    env = cartpole(limit=6)
    keys = jax.random.split(jax.random.key(0), 2)
    state, now = env.reset(keys)
    for _ in range(6):
        # Push against the fall: the pole is still up when time is out.
        action = (now.observation[:, 2] + now.observation[:, 3] > 0).astype(jnp.int32)
        state, now = env.step(state, action, keys)
    assert now.truncated.all()
    assert not now.terminated.any()

    env = cartpole()
    state, now = env.reset(keys)
    while not (now.terminated | now.truncated).any():
        state, now = env.step(state, jnp.ones(2, jnp.int32), keys)
    assert now.terminated.any()
    assert not now.truncated.any()


def test_last_observation_is_gymnaxs_final_one_and_the_next_starts_its_new_episode():
    inner, params = gymnax.make("CartPole-v1")
    params = params.replace(max_steps_in_episode=3)
    env = GymnaxEnvironment(inner, params, 1)
    key = jax.random.key(4)
    state, now = env.reset(key[None])
    observation, inner_state = inner.reset(key, params)
    np.testing.assert_allclose(now.observation[0], observation, rtol=1e-6)
    action = jnp.int32(1)
    for _ in range(3):
        state, now = env.step(state, action[None], key[None])
        observation, inner_state, _, _, truncated, info = inner.step(key, inner_state, action, params)
    assert truncated
    assert now.truncated[0]
    np.testing.assert_allclose(now.observation[0], info["final_observation"], rtol=1e-6)
    state, now = env.step(state, action[None], jax.random.key(9)[None])
    assert not now.valid[0]
    np.testing.assert_allclose(now.observation[0], observation, rtol=1e-6)
    # The inner state has not moved: the first transition starts from that observation.
    state, now = env.step(state, action[None], key[None])
    expected = inner.step(key, inner_state, action, params)[0]
    np.testing.assert_allclose(now.observation[0], expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
def test_shards_over_devices(devices):
    env = cartpole(limit=5, num_envs=8)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("devices",))
    state, _ = env.reset(jax.random.split(jax.random.key(0), 8))
    keys = jax.random.split(jax.random.key(1), (12, 8))

    def roll(state, keys):
        return jax.lax.scan(lambda s, k: env.step(s, jnp.zeros(k.shape[0], jnp.int32), k), state, keys)

    by_time = PartitionSpec(None, "devices")
    sharded = jax.shard_map(
        roll,
        mesh=mesh,
        in_specs=(PartitionSpec("devices"), by_time),
        out_specs=(PartitionSpec("devices"), by_time),
    )
    expected, got = jax.jit(roll)(state, keys), jax.jit(sharded)(state, keys)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), expected, got)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("FrozenLake-misc", (16,)),
        ("FourRooms-misc", (4,)),
        ("Catch-bsuite", (50,)),
        ("SimpleBandit-bsuite", (1,)),
        ("Asterix-MinAtar", (10, 10, 4)),
    ],
)
def test_observations_become_vectors_or_images(name, shape):
    spec = envs.make(f"gymnax:{name}", num_envs=1).spec
    assert (spec.observation_shape, spec.observation_dtype) == (shape, "float32")


def test_continuous_actions_are_refused():
    with pytest.raises(InvalidInput, match="discrete actions"):
        envs.make("gymnax:Pendulum-v1", num_envs=1)


def test_no_environments_are_refused():
    with pytest.raises(InvalidInput, match="num_envs"):
        cartpole(num_envs=0)


class TwoPartObservation(JaxPong):
    def get_obs(self, state, params, key=None):
        return {"ball": state.ball_x, "paddle": state.own_y}

    def observation_space(self, params):
        box = spaces.Box(-1.0, 1.0, (), jnp.float32)
        return spaces.Dict({"ball": box, "paddle": box})


def test_observations_of_several_parts_are_refused():
    env = TwoPartObservation()
    with pytest.raises(InvalidInput, match="one array"):
        GymnaxEnvironment(env, env.default_params, 1)


class OldProtocol(JaxPong):
    def step(self, key, state, action, params=None):
        observation, state, reward, terminated, truncated, info = super().step(key, state, action, params)
        return observation, state, reward, terminated | truncated, info


def test_the_protocol_of_older_gymnax_is_refused():
    env = OldProtocol()
    with pytest.raises(InvalidInput, match=r"gymnax 1\.0's protocol"):
        GymnaxEnvironment(env, env.default_params, 1)


def test_options_can_be_written_as_json():
    import json

    assert json.loads(json.dumps(cartpole().spec.options))["params"]["max_steps_in_episode"] == 500
