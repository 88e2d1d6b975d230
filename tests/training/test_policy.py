import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import admm_jax
from admm_jax.envs import EnvSpec
from admm_jax.errors import InvalidInput
from admm_jax.rl.observations import ObservationMoments
from admm_jax.training.evaluation import Evaluator, play_in_ale
from admm_jax.training.model import make_model
from admm_jax.training.options import RunOptions
from admm_jax.training.policy import Policy, Weights
from admm_jax.training.recording import record_game
from admm_jax.training.trainer import train
from tests.training.builders import cartpole

SPEC = EnvSpec("gymnax:CartPole-v1", 2, (4,), "float32", True, False)
MOMENTS = ObservationMoments(jnp.float32(9), jnp.array([1.0, 2, 3, 4]), jnp.array([4.0, 9, 1, 25]))


def policy(moments=None):
    config = cartpole(normalize_observations=moments is not None)
    _, params = make_model(config, SPEC, jax.random.key(2))
    return Policy(config, SPEC, Weights(params + 0.3, moments))


def test_observations_are_normalised_as_in_training():
    rows = np.random.default_rng(1).normal(3, 2, (5, 4)).astype(np.float32)
    plain, normalising = policy(), policy(MOMENTS)
    by_hand = (rows - np.asarray(MOMENTS.mean)) / (np.sqrt(np.asarray(MOMENTS.variance)) + 1e-4)
    for ours, theirs in zip(normalising.logits_and_value(rows), plain.logits_and_value(by_hand), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_actions_are_greedy_or_sampled_by_seed():
    player = policy()
    rows = np.random.default_rng(1).normal(size=(400, 4)).astype(np.float32)
    logits, _ = player.logits_and_value(rows)
    np.testing.assert_array_equal(player(rows, greedy=True), logits.argmax(axis=1))
    np.testing.assert_array_equal(player(rows, seed=4), player(rows, seed=4))
    assert (player(rows, seed=4) != player(rows, seed=5)).any()
    often = np.mean([player(rows, seed=seed) for seed in range(60)], axis=0)
    chance = np.exp(logits[:, 1]) / np.exp(logits).sum(axis=1)
    assert np.abs(often - chance).mean() < 0.07


@pytest.mark.parametrize("moments", [None, MOMENTS])
def test_weights_survive_their_file(tmp_path, moments):
    weights = Weights(jnp.arange(3.0), moments)
    weights.save(tmp_path)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), Weights.load(tmp_path), weights))
    assert [path.name for path in tmp_path.iterdir()] == ["policy.npz"]


def test_what_cannot_be_loaded(tmp_path):
    with pytest.raises(InvalidInput, match="folder of a run"):
        admm_jax.load_policy(tmp_path)
    (tmp_path / "policy.npz").write_bytes(b"PK not a zip")
    with pytest.raises(InvalidInput, match="intact"):
        Weights.load(tmp_path)
    with pytest.raises(InvalidInput, match="shape"):
        Policy(cartpole(), SPEC, Weights(jnp.zeros(3), None))
    with pytest.raises(InvalidInput, match=r"\(B, 4\)"):
        policy()(np.zeros((2, 5)))


@pytest.mark.slow
def test_a_run_leaves_the_policy_that_it_evaluated(tmp_path):
    config = cartpole(normalize_observations=True)
    options = RunOptions(total_steps=500, eval_every=0, final_episodes=6, run_dir=tmp_path / "run", progress=False)
    summary = train(config, options)
    player = admm_jax.load_policy(tmp_path / "run")
    again = Evaluator(player.config, player.model, greedy=False)(player.weights, 6, round_index=summary["rounds"])
    assert again.mean == pytest.approx(summary["eval_return_mean"])
    assert Image.open(tmp_path / "run" / "page.png").width > 500
    assert not (tmp_path / "run" / "z.gif").exists()  # nothing to see
    with pytest.raises(InvalidInput, match="no pictures"):
        record_game(player, tmp_path / "game.gif")
    with pytest.raises(InvalidInput, match="no Atari game"):
        play_in_ale(player, 2)


def pong_policy(env="Pong-v5", **changes):
    config = cartpole(env=env, network="article", hidden=(8,), channels=(2, 2), normalize_observations=True, **changes)
    spec = EnvSpec(env, 6 if env == "Pong-v5" else 3, (42, 42, 4), "uint8", False, True)
    _, params = make_model(config, spec, jax.random.key(0))
    moments = ObservationMoments(jnp.float32(1), jnp.full((42, 42, 4), 87.0), jnp.full((42, 42, 4), 9.0))
    return Policy(config, spec, Weights(params, moments))


@pytest.mark.slow
def test_a_policy_plays_full_games_in_ale():
    scores = play_in_ale(pong_policy(), 3, seed=7)
    assert (scores.episodes, scores.unfinished) == (3, 0)
    assert all(-21 <= score <= -15 and score == round(score) for score in scores.returns)
    assert 757 < scores.mean_length < 1400


@pytest.mark.slow
@pytest.mark.parametrize("env", ["Pong-v5", "jax-pong-pixels"])
def test_a_game_is_recorded(tmp_path, env):
    path = tmp_path / "new" / "game.gif"
    score = record_game(pong_policy(env), path, seed=3, max_steps=90)
    assert -6 <= score <= 2
    movie = Image.open(path)
    assert 20 < movie.n_frames <= 91  # frames that do not change are stored once
    assert movie.size == ((160, 210) if env == "Pong-v5" else (168, 168))
    if env == "Pong-v5":
        colours = {tuple(pixel) for pixel in np.asarray(movie.convert("RGB")).reshape(-1, 3)}
        assert any(max(colour) - min(colour) > 50 for colour in colours)
