"""EnvPool: two backends, several pools, one result."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from admm_jax import envs
from admm_jax.envs import envpool_adapter
from admm_jax.envs.envpool_adapter import first_seed
from admm_jax.errors import InvalidInput

pytest.importorskip("envpool")

NUM_ENVS, STEPS, LIMIT = 8, 24, 9


def roll(backend, pools, devices=None, seed=3):
    """[STEPS, N] time steps of one compiled scan, on one device or sharded over several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(envpool_adapter._ATARI, "max_episode_steps", LIMIT)
        env = envs.make("Pong-v5", num_envs=NUM_ENVS, seed=seed, pools=pools, backend=backend)
    assert env.backend == backend
    state, first = env.reset(None)
    actions = jax.random.randint(jax.random.key(5), (STEPS, NUM_ENVS), 0, env.spec.num_actions)

    def scan(state, actions):
        return jax.lax.scan(lambda state, action: env.step(state, action, None), state, actions)

    if devices:
        mesh = Mesh(np.array(jax.devices()[:devices]), ("devices",))
        specs = (PartitionSpec("devices"), PartitionSpec(None, "devices"))
        state, actions = (
            jax.device_put(value, NamedSharding(mesh, spec))
            for value, spec in zip((state, actions), specs, strict=True)
        )
        scan = jax.shard_map(scan, mesh=mesh, in_specs=specs, out_specs=specs)
    _, steps = jax.jit(scan)(state, actions)
    return jax.tree.map(np.asarray, (first, steps))


@pytest.fixture(scope="module")
def one_pool():
    return roll("xla", 1)


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize(
    ("backend", "pools", "devices"),
    [
        ("host", 1, None),
        ("xla", 2, None),
        ("host", 2, None),
        ("xla", 2, 2),
        ("host", 2, 2),
        ("xla", 4, 4),
        ("host", 4, 4),
        ("xla", 4, 2),
    ],
)
def test_backends_pools_and_devices_do_not_change_the_games(one_pool, backend, pools, devices):
    assert_same(one_pool, roll(backend, pools, devices))


def test_a_game_cut_off_by_the_limit_is_truncated(one_pool):
    _, steps = one_pool
    assert not steps.terminated.any()
    np.testing.assert_array_equal(np.flatnonzero(steps.truncated[:, 0]), [LIMIT - 1, 2 * LIMIT])
    np.testing.assert_array_equal(np.flatnonzero(~steps.valid[:, 0]), [LIMIT, 2 * LIMIT + 1])


def test_a_seed_is_reproducible_and_another_plays_differently(one_pool):
    assert_same(one_pool, roll("xla", 1))
    other = roll("xla", 1, seed=4)
    assert not np.array_equal(one_pool[1].observation, other[1].observation)


def test_frames_are_stacked_in_the_last_axis(one_pool):
    _, steps = one_pool
    # The newest frame of one step is the one before the newest of the next.
    np.testing.assert_array_equal(steps.observation[2, ..., 3], steps.observation[3, ..., 2])


def test_reset_copies_what_envpool_may_overwrite():
    env = envs.make("Pong-v5", num_envs=2)
    state, first = env.reset(None)
    before = np.array(first.observation)
    for _ in range(3):
        state, _ = env.step(state, np.ones(2, np.int32), None)
    env.reset(None)
    np.testing.assert_array_equal(first.observation, before)


def test_environments_have_streams_of_their_own():
    # Chance enters a game only through the number of no-ops at its start, so a few of 16 coincide.
    env = envs.make("Pong-v5", num_envs=16)
    state, _ = env.reset(None)
    action = jax.numpy.zeros(16, jax.numpy.int32)
    _, frames = jax.jit(
        lambda state: jax.lax.scan(
            lambda state, _: (lambda s, now: (s, now.observation[..., -1]))(*env.step(state, action, None)),
            state,
            length=30,
        )
    )(state)
    assert len(np.unique(frames.swapaxes(0, 1).reshape(16, -1), axis=0)) >= 8


def test_streams_and_seeds_lie_apart():
    firsts = [first_seed(seed, stream) for seed in range(20) for stream in range(3)]
    assert np.diff(np.sort(firsts)).min() > 1024
    assert min(firsts) >= 0
    assert max(firsts) < 2**30


def test_options_say_what_was_played():
    options = envs.make("Pong-v5", num_envs=2, pools=2, frame_size=30, frame_stack=2).spec.options
    assert options["frame_skip"] == 4
    assert options["repeat_action_probability"] == 0.0
    assert options["pools"] == 2
    assert not options["episodic_life"]
    assert not options["reward_clip"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_envs", 3),
        ("seed", -1),
        ("stream", -1),
        ("pools", 0),
        ("frame_size", 1000),
        ("frame_stack", 0),
        ("backend", "cuda"),
    ],
)
def test_values_out_of_range_are_refused(field, value):
    arguments = {"num_envs": 4, "pools": 2, field: value}
    with pytest.raises(InvalidInput, match=f"^{field} = "):
        envs.make("Pong-v5", **arguments)


def test_xla_is_refused_with_a_reason_where_it_is_unavailable(monkeypatch):
    import envpool

    def unavailable(self):
        raise RuntimeError("EnvPool XLA is currently unavailable on macOS.")

    pool = envpool.make("Pong-v5", env_type="gymnasium", num_envs=1)
    monkeypatch.setattr(type(pool), "xla", unavailable)
    with pytest.raises(InvalidInput, match="macOS"):
        envs.make("Pong-v5", num_envs=1, backend="xla")
    assert envs.make("Pong-v5", num_envs=1).backend == "host"
