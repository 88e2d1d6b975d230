"""Workers whose environments differ: in physics, in the scale of their rewards, or in what they are rewarded for.

Worker i of W stands at s_i, evenly spaced from -1 to 1 (0 for one worker); ``spread`` h >= 0 says how far apart that
is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from admm_jax.errors import InvalidInput, finite, nearest

Recipe = Literal["physics", "reward_scale", "conflict"]
RECIPES: tuple[Recipe, ...] = ("physics", "reward_scale", "conflict")

CART_RANGE = 2.4
"""Where the cart of CartPole leaves the track, metres."""


class Deviations(NamedTuple):
    """In what environments differ; leaves [N], one entry per environment (or per worker, [W]).

    Attributes:
        params: fields of the environment's parameters that replace the common ones.
        reward_scale: factor of what the worker learns from; scores do not see it. None for 1.
        target: CartPole: where the cart should stand, metres; it replaces the reward. None for the usual reward.
    """

    params: dict[str, jax.Array]
    reward_scale: jax.Array | None = None
    target: jax.Array | None = None

    def repeated(self, times: int) -> Deviations:
        """Leaves [W] -> [W x times], each worker's entry for all its environments."""
        return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf, jnp.float32), times), self)

    def rewarded(self, reward: jax.Array, observation: jax.Array) -> jax.Array:
        """Reward of one environment (leaves without axis) for a step that ended in ``observation``."""
        if self.target is None:
            return reward
        # 1 on the target, 0 a whole half track away.
        return 1 - jnp.clip(jnp.abs(observation[0] - self.target) / CART_RANGE, 0, 1)


def positions(num_workers: int) -> np.ndarray:
    """s, [W]."""
    return np.linspace(-1, 1, num_workers) if num_workers > 1 else np.zeros(1)


def deviations(recipe: str, env: str, spread: float, num_workers: int) -> Deviations:
    """Deviations [W] by name of a recipe.

    Args:
        recipe: physics (CartPole, Acrobot, JAX Pong), reward_scale (any environment written in JAX) or conflict
            (CartPole).
        env: name of the environment.
        spread: h.
        num_workers: W.

    Raises:
        InvalidInput: no such recipe for this environment, or a spread that is negative or not finite.
    """
    finite("spread", spread, low=0)
    exponent = spread * positions(num_workers)
    if recipe == "physics":
        if env not in PHYSICS:
            raise InvalidInput("heterogeneity", recipe, f"used with one of {', '.join(PHYSICS)}; env is {env}")
        return Deviations(params=PHYSICS[env](exponent))
    if recipe == "reward_scale":
        return Deviations(params={}, reward_scale=4.0**exponent)
    if recipe == "conflict":
        if env != "gymnax:CartPole-v1":
            raise InvalidInput("heterogeneity", recipe, f"used with gymnax:CartPole-v1; env is {env}")
        finite("spread", spread, low=0, high=1)
        return Deviations(params={}, target=CART_RANGE / 2 * exponent)
    close = nearest(recipe, RECIPES, 1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise InvalidInput("heterogeneity", recipe, f"one of {', '.join(RECIPES)}{hint}")


def _cartpole(exponent: np.ndarray) -> dict[str, np.ndarray]:
    """A longer pole, a weaker motor, and more gravity; masses stay."""
    length = 0.5 * 4.0**exponent
    return {
        "length": length,
        "polemass_length": 0.1 * length,
        "force_mag": 10.0 * 4.0**-exponent,
        "gravity": 9.8 * 2.0**exponent,
    }


def _acrobot(exponent: np.ndarray) -> dict[str, np.ndarray]:
    """Heavier and longer links, for the same motor."""
    length = 1.25**exponent
    return {
        "link_mass_1": 1.5**exponent,
        "link_mass_2": 1.5**exponent,
        "link_length_1": length,
        "link_com_pos_1": 0.5 * length,
        "link_com_pos_2": 0.5 * length,
    }


def _jax_pong(exponent: np.ndarray) -> dict[str, np.ndarray]:
    """A faster ball, and an opponent that keeps up with more of it."""
    return {"ball_speed": 0.075 * 1.25**exponent, "opponent_speed": 0.075 * 1.5**exponent}


PHYSICS: dict[str, Callable[[np.ndarray], dict[str, np.ndarray]]] = {
    "gymnax:CartPole-v1": _cartpole,
    "gymnax:Acrobot-v1": _acrobot,
    "jax-pong": _jax_pong,
    "jax-pong-pixels": _jax_pong,
}
"""Parameters [W] of h s, [W], by environment."""


def explicit(params: Mapping[str, Any], known: Mapping[str, Any], num_workers: int) -> Deviations:
    """Deviations [W] from numbers that a user gives.

    Args:
        params: a list of W numbers by field.
        known: the environment's parameters by field.
        num_workers: W.

    Raises:
        InvalidInput: an unknown field, one that is no number, or a list of another length.
    """
    for name, values in params.items():
        if not isinstance(known.get(name), (int, float)):
            numbers = [field for field, value in known.items() if isinstance(value, (int, float))]
            hint = "".join(f"; nearest: {close}" for close in nearest(name, numbers, 1))
            raise InvalidInput("worker_params", name, f"a parameter of the environment that is a number{hint}")
        right = isinstance(values, list) and len(values) == num_workers
        if not right or not all(isinstance(value, (int, float)) and np.isfinite(value) for value in values):
            raise InvalidInput("worker_params", {name: values}, f"a list of {num_workers} numbers, one per worker")
    return Deviations(params={name: np.asarray(values, np.float32) for name, values in params.items()})
