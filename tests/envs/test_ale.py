"""Our own preprocessing of the Arcade Learning Environment, by hand and against EnvPool's."""

import numpy as np
import pytest

from admm_jax import envs
from admm_jax.envs.ale import FRAME_SKIP, AleGame, area_weights
from admm_jax.errors import InvalidInput

pytest.importorskip("ale_py")


def test_area_weights_by_hand():
    np.testing.assert_allclose(area_weights(4, 2), [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    # Stretches of 1.5 pixels: one and a half of the next.
    np.testing.assert_allclose(area_weights(3, 2), [[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]], rtol=1e-6)


@pytest.mark.parametrize("length", [160, 210])
def test_area_weights_average(length):
    weights = area_weights(length, 42)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(weights.sum(axis=0), 42 / length, rtol=1e-4)


def test_a_game_of_doing_nothing_is_lost():
    game = AleGame("Pong-v5", seed=3, frame_size=21, frame_stack=2)
    assert game.num_actions == 6
    observation = game.reset()
    assert (observation.shape, observation.dtype) == ((21, 21, 2), np.uint8)
    assert not observation[..., 0].any()  # nothing before the first frame
    assert game.screen.shape == (210, 160, 3)
    total, steps, before = 0.0, 0, observation
    while True:
        observation, outcome = game.step(0)
        np.testing.assert_array_equal(observation[..., 0], before[..., 1])
        before, total, steps = observation, total + outcome.reward, steps + 1
        if outcome.terminated or outcome.truncated:
            break
    assert (total, outcome.terminated, outcome.truncated) == (-21, True, False)
    assert 700 < steps < 3200 / FRAME_SKIP


def test_seeds_start_different_games():
    def opening(seed):
        game = AleGame("Pong-v5", seed)
        game.reset()
        return np.stack([game.step(0)[0] for _ in range(25)])

    np.testing.assert_array_equal(opening(1), opening(1))
    assert any((opening(1) != opening(seed)).any() for seed in (2, 3, 4))


def test_frames_look_like_those_of_envpool():
    game, pool = AleGame("Pong-v5", seed=5), envs.make("Pong-v5", num_envs=1, seed=5)
    ours = game.reset()[..., -1].astype(float)
    _, first = pool.reset(None)
    theirs = np.asarray(first.observation)[0, ..., -1].astype(float)
    # Ball and paddles may stand elsewhere; field, borders and score are the same.
    assert np.median(np.abs(ours - theirs)) <= 1
    assert (np.abs(ours - theirs) > 3).mean() < 0.05


@pytest.mark.parametrize("name", ["Pongg-v5", "CartPole-v1"])
def test_unknown_games_are_refused(name):
    with pytest.raises(InvalidInput, match="Pong-v5"):
        AleGame(name, seed=0)


def test_names_of_several_words():
    assert AleGame("SpaceInvaders-v5", seed=0).num_actions == 6
