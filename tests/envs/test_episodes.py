"""One episode per environment, each counted whole and once."""

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax import envs
from admm_jax.envs.gymnax_adapter import GymnaxEnvironment
from admm_jax.errors import InvalidInput


def push(direction, observation, key):
    """Always the same action: CartPole falls after about 9 steps, each worth 1."""
    return jnp.full(len(observation), direction, jnp.int32)


@pytest.fixture(scope="module")
def player():
    return envs.EpisodePlayer(envs.make("gymnax:CartPole-v1", num_envs=4), push)


def test_returns_count_the_first_episode_alone(player):
    episodes = player.play(jnp.int32(1), jax.random.key(0), 500)
    assert episodes.finished.all()
    np.testing.assert_array_equal(episodes.returns, episodes.lengths)
    assert episodes.lengths.min() >= 8
    assert episodes.lengths.max() <= 11


def test_chunks_do_not_change_the_outcome_of_a_deterministic_policy(player):
    short = envs.EpisodePlayer(player._env, push, chunk=3)
    episodes = [player.play(jnp.int32(0), jax.random.key(7), 500) for player in (short, player)]
    jax.tree.map(np.testing.assert_array_equal, *episodes)


@pytest.mark.parametrize("max_steps", [1, 5])
def test_the_step_limit_leaves_episodes_unfinished(player, max_steps):
    episodes = player.play(jnp.int32(0), jax.random.key(0), max_steps)
    assert not episodes.finished.any()
    np.testing.assert_array_equal(episodes.lengths, np.full(4, max_steps))


def test_an_episode_cut_off_by_the_environment_is_finished():
    inner, params = gymnax.make("CartPole-v1")
    env = GymnaxEnvironment(inner, params.replace(max_steps_in_episode=4), 3)
    episodes = envs.EpisodePlayer(env, push).play(0, jax.random.key(0), 100)
    assert episodes.finished.all()
    np.testing.assert_array_equal(episodes.returns, np.full(3, 4.0))


def test_new_parameters_do_not_compile_again(player):
    for direction in (0, 1):
        player.play(jnp.int32(direction), jax.random.key(0), 100)
    assert player._run_chunk._cache_size() == 1


def test_limits_below_one_are_refused(player):
    with pytest.raises(InvalidInput, match="chunk"):
        envs.EpisodePlayer(player._env, push, chunk=0)
    with pytest.raises(InvalidInput, match="max_steps"):
        player.play(0, jax.random.key(0), 0)
