"""Pong in JAX: small enough for sweeps and accelerators, and won by aiming.

The court is [-1, 1] x [-1, 1]; x points to the agent, whose paddle guards x = 1, and y points up. The
horizontal speed of the ball is fixed; its vertical speed after the agent's hit grows with the square of the
distance from the paddle's centre, so that only a hit near the paddle's edge outruns the opponent, whose speed is
limited: a hit by chance is seldom a point, an aimed one mostly is.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from gymnax.environments import environment, spaces

STAY, UP, DOWN = range(3)


@struct.dataclass
class PongState(environment.EnvState):
    """One game. Lengths are in half court heights (or lengths), speeds per step."""

    ball_x: jax.Array
    ball_y: jax.Array
    ball_vx: jax.Array
    ball_vy: jax.Array
    own_y: jax.Array
    own_v: jax.Array
    opponent_y: jax.Array
    opponent_v: jax.Array
    own_score: jax.Array
    opponent_score: jax.Array


@struct.dataclass
class PongParams(environment.EnvParams):
    """Rules and difficulty.

    Attributes:
        ball_speed: horizontal speed; crossing the court takes ``2 / ball_speed`` steps.
        steepest: vertical speed after a hit with the very edge of the agent's paddle.
        serve_spread: a serve's vertical speed is uniform in [-serve_spread, serve_spread].
        return_spread: the same for the opponent's hits, which are not aimed.
        paddle_speed: of the agent.
        paddle_half: half the height of either paddle.
        opponent_speed: its difficulty; at ``steepest`` or above it misses nothing. It follows the ball.
        points_to_win: the game ends (terminates) when one side has as many.
        max_steps_in_episode: after as many steps the game is truncated.
    """

    ball_speed: float = 0.075
    steepest: float = 0.14
    serve_spread: float = 0.0375
    return_spread: float = 0.06
    paddle_speed: float = 0.05
    paddle_half: float = 0.2
    opponent_speed: float = 0.075
    points_to_win: int = 21
    max_steps_in_episode: int = 5000


class JaxPong(environment.Environment[PongState, PongParams]):
    """Pong seen as 8 numbers, first to 21, reward +1 or -1 per point.

    Actions: 0 stay, 1 up, 2 down. Observation, float32 [8], each within about [-1, 1]: ball x, y, vx, vy, own
    paddle's y and speed, opponent's y and speed.
    """

    @property
    def name(self) -> str:
        """Name of the environment."""
        return "jax-pong"

    @property
    def num_actions(self) -> int:
        """Stay, up, down."""
        return 3

    @property
    def default_params(self) -> PongParams:
        """The benchmark's rules."""
        return PongParams()

    def reset_env(self, key: jax.Array, params: PongParams) -> tuple[jax.Array, PongState]:
        """A new game: score 0 to 0, paddles in the middle, a random serve."""
        x, y, vx, vy = _serve(jax.random.uniform(key, (3,)), params)
        zero = jnp.float32(0)
        state = PongState(
            time=jnp.int32(0),
            ball_x=x,
            ball_y=y,
            ball_vx=vx,
            ball_vy=vy,
            own_y=zero,
            own_v=zero,
            opponent_y=zero,
            opponent_v=zero,
            own_score=jnp.int32(0),
            opponent_score=jnp.int32(0),
        )
        return self.get_obs(state, params), state

    def step_env(
        self, key: jax.Array, state: PongState, action: jax.Array, params: PongParams
    ) -> tuple[jax.Array, PongState, jax.Array, jax.Array, dict[Any, Any]]:
        """Move the paddles, then the ball; score a point if the ball passes a paddle."""
        state, reward = play_step(jax.random.uniform(key, (3,)), state, action, params)
        terminated = self.is_terminated(state, params)
        return self.get_obs(state, params), state, reward, terminated, {}

    def is_terminated(self, state: PongState, params: PongParams) -> jax.Array:
        """Whether one side has won."""
        return jnp.maximum(state.own_score, state.opponent_score) >= params.points_to_win

    def get_obs(self, state: PongState, params: PongParams, key: jax.Array | None = None) -> jax.Array:
        """The 8 numbers."""
        return jnp.stack(
            [
                state.ball_x,
                state.ball_y,
                state.ball_vx / params.ball_speed,
                state.ball_vy / params.steepest,
                state.own_y,
                state.own_v / params.paddle_speed,
                state.opponent_y,
                state.opponent_v / params.opponent_speed,
            ]
        )

    def action_space(self, params: PongParams | None = None) -> spaces.Discrete:
        """Three actions."""
        return spaces.Discrete(3)

    def observation_space(self, params: PongParams) -> spaces.Box:
        """Eight numbers."""
        return spaces.Box(-2.0, 2.0, (8,), dtype=jnp.float32)


@struct.dataclass
class PongPixelsState(PongState):
    """A game and the positions in its last frames.

    Attributes:
        history: [frames, 4] float32, ball x, ball y, own y, opponent y; the newest last.
    """

    history: jax.Array


class JaxPongPixels(JaxPong):
    """Pong seen as an image: uint8 [size, size, frames], the newest frame last, as EnvPool stacks them.

    Edges are anti-aliased, so that motion of less than a pixel shows. Rows run from y = 1 at the top to
    y = -1, columns from x = -1 to x = 1. A new game repeats its first frame.

    Args:
        size: height and width in pixels.
        frames: how many frames are stacked.
    """

    def __init__(self, size: int = 42, frames: int = 4) -> None:
        self.size, self.frames = size, frames

    @property
    def name(self) -> str:
        """Name of the environment."""
        return "jax-pong-pixels"

    def reset_env(self, key: jax.Array, params: PongParams) -> tuple[jax.Array, PongPixelsState]:
        """As ``JaxPong.reset_env``."""
        _, game = JaxPong.reset_env(_NUMBERS, key, params)
        state = PongPixelsState(history=jnp.tile(_positions(game), (self.frames, 1)), **vars(game))
        return self.get_obs(state, params), state

    def step_env(
        self, key: jax.Array, state: PongPixelsState, action: jax.Array, params: PongParams
    ) -> tuple[jax.Array, PongPixelsState, jax.Array, jax.Array, dict[Any, Any]]:
        """As ``JaxPong.step_env``."""
        state, reward = play_step(jax.random.uniform(key, (3,)), state, action, params)
        state = state.replace(history=jnp.concatenate([state.history[1:], _positions(state)[None]]))
        return self.get_obs(state, params), state, reward, self.is_terminated(state, params), {}

    def get_obs(self, state: PongPixelsState, params: PongParams, key: jax.Array | None = None) -> jax.Array:
        """The stacked frames, drawn from the positions."""
        pixel = 2.0 / self.size
        centre = (jnp.arange(self.size) + 0.5) * pixel - 1.0
        across = centre[None, :, None]
        down = -centre[:, None, None]
        ball_x, ball_y, own_y, opponent_y = state.history.T

        def covered(distance, half):
            """Share of a pixel inside an object of that half width, along one axis."""
            return jnp.clip((half - jnp.abs(distance)) / pixel + 0.5, 0.0, 1.0)

        ball = covered(across - ball_x, pixel) * covered(down - ball_y, pixel)
        own = covered(across - 1.0, 2 * pixel) * covered(down - own_y, params.paddle_half)
        opponent = covered(across + 1.0, 2 * pixel) * covered(down - opponent_y, params.paddle_half)
        # The ball is drawn full, paddles dimmer, so that a ball at a paddle can still be seen.
        frame = jnp.maximum(ball, 0.4 * (own + opponent))
        return jnp.round(frame * 255.0).astype(jnp.uint8)

    def observation_space(self, params: PongParams) -> spaces.Box:
        """Bytes."""
        return spaces.Box(0, 255, (self.size, self.size, self.frames), dtype=jnp.uint8)


_NUMBERS = JaxPong()


def play_step(
    uniform: jax.Array, state: PongState, action: jax.Array, params: PongParams
) -> tuple[PongState, jax.Array]:
    """One step of the rules.

    Args:
        uniform: [3] numbers in [0, 1): all the chance of a step.
        state: a game, or any subclass of it.
        action: 0 stay, 1 up, 2 down.
        params: the rules.

    Returns:
        The next state and the reward, +1, 0 or -1.
    """
    reach = 1.0 - params.paddle_half
    wish = jnp.where(action == UP, 1.0, 0.0) - jnp.where(action == DOWN, 1.0, 0.0)
    own_y = jnp.clip(state.own_y + wish * params.paddle_speed, -reach, reach)
    chase = jnp.clip(state.ball_y - state.opponent_y, -params.opponent_speed, params.opponent_speed)
    opponent_y = jnp.clip(state.opponent_y + chase, -reach, reach)

    x, y, vx, vy = state.ball_x + state.ball_vx, state.ball_y + state.ball_vy, state.ball_vx, state.ball_vy
    outside = jnp.abs(y) > 1.0
    y = jnp.where(outside, jnp.sign(y) * 2.0 - y, y)
    vy = jnp.where(outside, -vy, vy)

    at_own, at_opponent = x >= 1.0, x <= -1.0
    offset = (y - own_y) / params.paddle_half
    own_hit = at_own & (jnp.abs(offset) <= 1.0)
    opponent_hit = at_opponent & (jnp.abs(y - opponent_y) <= params.paddle_half)
    won, lost = at_opponent & ~opponent_hit, at_own & ~own_hit

    vy = jnp.where(own_hit, offset * jnp.abs(offset) * params.steepest, vy)
    vy = jnp.where(opponent_hit, (2.0 * uniform[1] - 1.0) * params.return_spread, vy)
    hit = own_hit | opponent_hit
    x, vx = jnp.where(hit, jnp.sign(x) * 2.0 - x, x), jnp.where(hit, -vx, vx)

    point = won | lost
    x, y, vx, vy = (jnp.where(point, s, b) for s, b in zip(_serve(uniform, params), (x, y, vx, vy), strict=True))
    state = state.replace(
        time=state.time + 1,
        ball_x=x,
        ball_y=y,
        ball_vx=vx,
        ball_vy=vy,
        own_y=own_y,
        own_v=own_y - state.own_y,
        opponent_y=opponent_y,
        opponent_v=opponent_y - state.opponent_y,
        own_score=state.own_score + won,
        opponent_score=state.opponent_score + lost,
    )
    return state, won.astype(jnp.float32) - lost.astype(jnp.float32)


def _serve(uniform: jax.Array, params: PongParams) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """A ball (x, y, vx, vy) from the middle line, towards either side."""
    vx = jnp.where(uniform[2] < 0.5, -1.0, 1.0) * params.ball_speed
    return jnp.float32(0), uniform[0] - 0.5, vx, (2.0 * uniform[1] - 1.0) * params.serve_spread


def _positions(state: PongState) -> jax.Array:
    return jnp.stack([state.ball_x, state.ball_y, state.own_y, state.opponent_y])
