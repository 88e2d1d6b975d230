"""The rules of JAX Pong, by hand, and what they make of a policy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax import envs
from admm_jax.envs.gymnax_adapter import GymnaxEnvironment
from admm_jax.envs.jax_pong import DOWN, STAY, UP, JaxPong, JaxPongPixels, PongParams, play_step

PARAMS = PongParams(ball_speed=0.1, steepest=0.08, paddle_speed=0.05, paddle_half=0.2, opponent_speed=0.04)
CHANCE = jnp.array([0.75, 0.75, 0.25])


def game(**fields):
    """A game with the ball in the middle, flying flat towards the agent, unless said otherwise."""
    _, state = JaxPong().reset_env(jax.random.key(0), PARAMS)
    start = {"ball_x": 0.0, "ball_y": 0.0, "ball_vx": 0.1, "ball_vy": 0.0} | fields
    return state.replace(**{name: jnp.asarray(value, getattr(state, name).dtype) for name, value in start.items()})


def after(action=STAY, **fields):
    return play_step(CHANCE, game(**fields), jnp.int32(action), PARAMS)


def close(value, expected):
    assert float(value) == pytest.approx(expected, abs=1e-6)


def test_the_ball_flies_straight_and_bounces_off_the_walls():
    state, reward = after(ball_y=0.5, ball_vy=0.03)
    close(state.ball_x, 0.1), close(state.ball_y, 0.53), close(reward, 0.0)
    state, _ = after(ball_y=0.98, ball_vy=0.05)
    close(state.ball_y, 0.97), close(state.ball_vy, -0.05)
    state, _ = after(ball_y=-0.98, ball_vy=-0.05)
    close(state.ball_y, -0.97), close(state.ball_vy, 0.05)


@pytest.mark.parametrize(("ball_y", "vy"), [(0.0, 0.0), (0.1, 0.02), (-0.1, -0.02), (0.2, 0.08)])
def test_where_the_ball_meets_the_paddle_sets_its_angle(ball_y, vy):
    # Half way to the edge gives a quarter of the steepest angle.
    state, reward = after(ball_x=0.95, ball_y=ball_y)
    close(state.ball_x, 0.95), close(state.ball_vx, -0.1), close(state.ball_vy, vy), close(reward, 0.0)


def test_the_opponent_returns_at_a_random_angle():
    state, reward = after(ball_x=-0.95, ball_vx=-0.1)
    close(state.ball_x, -0.95), close(state.ball_vx, 0.1), close(reward, 0.0)
    close(state.ball_vy, 0.5 * PARAMS.return_spread)


def test_a_ball_past_the_agent_is_a_point_lost_and_one_past_the_opponent_won():
    state, reward = after(ball_x=0.95, ball_y=0.5)
    close(reward, -1.0)
    assert (int(state.own_score), int(state.opponent_score)) == (0, 1)
    state, reward = after(ball_x=-0.95, ball_vx=-0.1, ball_y=0.5)
    close(reward, 1.0)
    assert (int(state.own_score), int(state.opponent_score)) == (1, 0)
    # The chance of the step made the next serve.
    close(state.ball_x, 0.0), close(state.ball_y, 0.25), close(state.ball_vx, -0.1)
    close(state.ball_vy, 0.5 * PARAMS.serve_spread)


def test_paddles_move_at_their_speed_and_stay_on_the_court():
    for action, move in ((STAY, 0.0), (UP, 0.05), (DOWN, -0.05)):
        state, _ = after(action, own_y=0.3)
        close(state.own_y, 0.3 + move), close(state.own_v, move)
    state, _ = after(UP, own_y=0.78)
    close(state.own_y, 0.8), close(state.own_v, 0.02)
    state, _ = after(DOWN, own_y=-0.8)
    close(state.own_y, -0.8), close(state.own_v, 0.0)


def test_the_opponent_follows_the_ball_at_limited_speed():
    state, _ = after(ball_y=0.5)
    close(state.opponent_y, 0.04), close(state.opponent_v, 0.04)
    state, _ = after(ball_y=-0.01)
    close(state.opponent_y, -0.01)


def test_the_first_to_reach_the_points_ends_the_game():
    env, key = JaxPong(), jax.random.key(0)
    state = game(ball_x=0.95, ball_y=0.5, opponent_score=PARAMS.points_to_win - 2)
    *_, terminated, truncated, _ = env.step(key, state, 0, PARAMS)
    assert not terminated
    assert not truncated
    state = state.replace(opponent_score=jnp.int32(PARAMS.points_to_win - 1))
    *_, terminated, truncated, _ = env.step(key, state, 0, PARAMS)
    assert terminated
    assert not truncated


def test_the_step_limit_truncates():
    state = game(time=PARAMS.max_steps_in_episode - 1)
    *_, terminated, truncated, _ = JaxPong().step(jax.random.key(0), state, 0, PARAMS)
    assert truncated
    assert not terminated


def test_serves_are_random():
    _, states = jax.vmap(lambda key: JaxPong().reset_env(key, PARAMS))(jax.random.split(jax.random.key(0), 64))
    assert len(np.unique(states.ball_y)) == 64
    assert len(np.unique(states.ball_vy)) == 64
    assert 16 < (np.asarray(states.ball_vx) > 0).sum() < 48


def test_pixels_show_ball_and_paddles_where_they_are():
    env = JaxPongPixels(size=40, frames=2)
    _, state = env.reset_env(jax.random.key(0), PARAMS)
    # (ball x, ball y, own y, opponent y): one pixel is 0.05, so y = 0.5 lies between rows 9 and 10.
    history = jnp.array([[0.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.5, -0.5]])
    image = np.asarray(env.get_obs(state.replace(history=history), PARAMS))
    assert image.shape == (40, 40, 2)
    assert image.dtype == np.uint8
    assert (image[19:21, 19:21, 0] == 255).all()
    rows, columns = np.nonzero(image[..., 1] == 255)
    assert set(rows) == {9, 10}
    assert set(columns) == {29, 30}
    own, opponent = image[:, 39, 1], image[:, 0, 1]
    assert (own[6:14] == 102).all()
    assert not own[:6].any()
    assert not own[14:].any()
    assert (opponent[26:34] == 102).all()
    assert not opponent[:26].any()


@pytest.mark.slow
def test_both_observations_belong_to_the_same_game():
    games = []
    for env in (JaxPong(), JaxPongPixels(size=16, frames=2)):
        player = envs.EpisodePlayer(
            GymnaxEnvironment(env, PARAMS.replace(points_to_win=2), 4),
            lambda _, obs, key: jnp.zeros(4, jnp.int32),
        )
        games.append(player.play(None, jax.random.key(1), 500))
    jax.tree.map(np.testing.assert_array_equal, *games)


def stay(_, observation, key):
    return jnp.zeros(len(observation), jnp.int32)


def wander(_, observation, key):
    return jax.random.randint(key, (len(observation),), 0, 3)


def aim(params, observation, key):
    """Meet the ball with the paddle's edge, to send it along the wall that is nearer to where it lands."""
    x, y, vx, vy, own_y = observation.T[:5]
    steps = jnp.ceil((1.0 - x) / params.ball_speed)
    landing = 1.0 - jnp.abs((y + vy * params.steepest * steps + 1.0) % 4.0 - 2.0)
    edge = landing + 0.85 * params.paddle_half * jnp.where(landing > 0.0, -1.0, 1.0)
    move = jnp.where(vx > 0.0, edge, 0.0) - own_y
    return jnp.where(jnp.abs(move) < 0.03, STAY, jnp.where(move > 0.0, UP, DOWN))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "lowest", "highest"), [(stay, -21.0, -18.0), (wander, -21.0, -18.5), (aim, 15.0, 21.0)]
)
def test_standing_still_and_wandering_lose_and_aiming_wins(policy, lowest, highest):
    env = envs.make("jax-pong", num_envs=64)
    params = PongParams()
    episodes = envs.EpisodePlayer(env, policy, chunk=256).play(params, jax.random.key(2), 5000)
    assert lowest <= episodes.returns.mean() <= highest
    assert episodes.finished.all()
    assert 500 <= episodes.lengths.mean() <= 3000
