"""Environments that differ by worker: which numbers they get, and that these act."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax import envs
from admm_jax.envs.heterogeneity import PHYSICS, Deviations, deviations, explicit, positions
from admm_jax.errors import InvalidInput

CARTPOLE = "gymnax:CartPole-v1"


def test_workers_stand_evenly_from_minus_one_to_one():
    np.testing.assert_allclose(positions(5), [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_array_equal(positions(1), [0])


def test_physics_of_three_poles():
    own = deviations("physics", CARTPOLE, 0.5, 3)
    np.testing.assert_allclose(own.params["length"], [0.25, 0.5, 1.0])
    np.testing.assert_allclose(own.params["polemass_length"], [0.025, 0.05, 0.1])
    np.testing.assert_allclose(own.params["force_mag"], [20, 10, 5])
    np.testing.assert_allclose(own.params["gravity"], 9.8 * 2.0 ** np.array([-0.5, 0, 0.5]))


@pytest.mark.parametrize("env", PHYSICS)
def test_in_the_middle_nothing_changes(env):
    common = envs.parameters(env)
    for spread, workers in ((0.0, 4), (2.0, 1)):
        for name, values in deviations("physics", env, spread, workers).params.items():
            np.testing.assert_allclose(values, common[name], err_msg=name)


def test_scales_and_targets():
    np.testing.assert_allclose(deviations("reward_scale", "jax-pong", 1.0, 3).reward_scale, [0.25, 1, 4])
    own = deviations("conflict", CARTPOLE, 0.5, 3)
    np.testing.assert_allclose(own.target, [-0.6, 0, 0.6])
    one = Deviations({}, target=jnp.float32(-0.6))
    assert one.rewarded(jnp.float32(1), jnp.array([-0.6, 0.0])) == 1
    assert one.rewarded(jnp.float32(1), jnp.array([0.6, 0.0])) == pytest.approx(0.5)


def test_every_worker_has_its_own_for_all_its_environments():
    own = Deviations({"length": np.array([0.4, 0.9])}, reward_scale=np.array([1.0, 3.0])).repeated(3)
    np.testing.assert_allclose(own.params["length"], [0.4] * 3 + [0.9] * 3)
    np.testing.assert_allclose(own.reward_scale, [1] * 3 + [3] * 3)
    assert own.target is None


def test_a_step_uses_the_environments_own_numbers():
    own = explicit({"force_mag": [5.0, 10.0, 20.0]}, envs.parameters(CARTPOLE), 3)
    unlike = envs.make(CARTPOLE, num_envs=3, deviations=own.repeated(1))
    alike = envs.make(CARTPOLE, num_envs=3)
    keys = jax.random.split(jax.random.key(0), 3)
    right = jnp.ones(3, jnp.int32)
    state, _ = unlike.reset(keys)
    _, now = unlike.step(state, right, keys)
    common, _ = alike.reset(keys)
    start = np.asarray(common.inner.x_dot)
    _, middle = alike.step(common, right, keys)
    np.testing.assert_allclose(now.observation[1], middle.observation[1], atol=1e-7)
    push = np.asarray(now.observation[:, 1]) - start
    np.testing.assert_allclose(push / push[1], [0.5, 1, 2], rtol=0.02)
    assert now.reward_scale is None
    assert middle.reward_scale is None


def test_conflicting_rewards_are_scores_and_scales_are_not():
    keys = jax.random.split(jax.random.key(1), 2)
    targets = envs.make(CARTPOLE, num_envs=2, deviations=deviations("conflict", CARTPOLE, 1.0, 2).repeated(1))
    _, now = targets.step(targets.reset(keys)[0], jnp.zeros(2, jnp.int32), keys)
    np.testing.assert_allclose(now.reward, [0.5, 0.5], atol=0.05)  # both half a half track from their targets
    scaled = envs.make(CARTPOLE, num_envs=2, deviations=deviations("reward_scale", CARTPOLE, 1.0, 2).repeated(1))
    _, now = scaled.step(scaled.reset(keys)[0], jnp.zeros(2, jnp.int32), keys)
    np.testing.assert_array_equal(now.reward, [1, 1])
    np.testing.assert_allclose(now.reward_scale, [0.25, 4])


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        (("physics", CARTPOLE, -0.5, 4), "spread", ">= 0"),
        (("physics", CARTPOLE, float("nan"), 4), "spread", "finite"),
        (("physics", "gymnax:MountainCar-v0", 1.0, 4), "heterogeneity", "CartPole"),
        (("conflict", "jax-pong", 1.0, 4), "heterogeneity", "CartPole"),
        (("conflict", CARTPOLE, 1.5, 4), "spread", "<= 1"),
        (("phisics", CARTPOLE, 1.0, 4), "heterogeneity", "physics"),
    ],
)
def test_recipes_that_do_not_fit_are_refused(arguments, field, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        deviations(*arguments)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"lenght": [1.0, 2.0]}, "nearest: length"),
        ({"length": [1.0]}, "list of 2 numbers"),
        ({"length": [1.0, float("inf")]}, "list of 2 numbers"),
        ({"length": 0.5}, "list of 2 numbers"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(params, words):
    with pytest.raises(InvalidInput, match=words):
        explicit(params, envs.parameters(CARTPOLE), 2)


def test_emulators_are_all_alike():
    assert envs.parameters("Pong-v5") == {}
    with pytest.raises(InvalidInput, match="all alike"):
        envs.make("Pong-v5", num_envs=1, deviations=Deviations({}))
