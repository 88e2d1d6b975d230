"""Any gymnax environment with discrete actions, as a batched ``Environment``.

gymnax resets inside the step that ends an episode. The adapter returns that step's ``final_observation``
and keeps the new episode's first observation for the next call, which does not advance the inner state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from admm_jax.envs.base import EnvSpec, TimeStep
from admm_jax.envs.heterogeneity import Deviations
from admm_jax.errors import InvalidInput


class GymnaxState(NamedTuple):
    """State of ``n`` environments; every leaf has the leading axis [n].

    Attributes:
        inner: gymnax's own state.
        next_observation: [n, *observation_shape], the first observation of the next episode where ``pending``.
        pending: [n] bool, the episode has ended and the next call starts a new one.
        own: in what each environment differs from the others, leaves [n]; None if they are all alike.
    """

    inner: Any
    next_observation: jax.Array
    pending: jax.Array
    own: Deviations | None


class GymnaxEnvironment:
    """``num_envs`` copies of a gymnax environment.

    Args:
        env: anything that follows gymnax 1.0's public protocol (six values from ``step``).
        params: its parameters, shared by all copies.
        num_envs: N, at least 1.
        deviations: in what each of them differs, leaves [N]; None if they are all alike.
        name: spelled as the user spelled it; ``gymnax:`` and the environment's own name by default.

    Raises:
        InvalidInput: continuous actions, an observation that is not one array, or an older protocol.
    """

    def __init__(
        self, env: Any, params: Any, num_envs: int, *, deviations: Deviations | None = None, name: str | None = None
    ) -> None:
        if num_envs < 1:
            raise InvalidInput("num_envs", num_envs, "at least 1")
        name = name or f"gymnax:{env.name}"
        self._env, self._params, self.num_envs, self._deviations = env, params, num_envs, deviations

        action_space = env.action_space(params)
        if getattr(action_space, "n", None) is None:
            raise InvalidInput("env", name, "an environment with discrete actions (this one's are continuous)")
        self._as_array = _observation_converter(env, params, name)
        _check_protocol(env, params, name)
        observation = jax.eval_shape(lambda key: self._as_array(env.reset(key, params)[0]), jax.random.key(0))
        self.spec = EnvSpec(
            name=name,
            num_actions=int(action_space.n),
            observation_shape=observation.shape,
            observation_dtype=observation.dtype.name,
            resumable=True,
            clip_rewards=False,
            options={"source": "gymnax", "params": _plain(params)},
        )
        self._reset = jax.jit(self._reset_traceable)

    def reset(self, keys: jax.Array) -> tuple[GymnaxState, TimeStep]:
        """See ``Environment.reset``."""
        return self._reset(keys)

    def step(self, state: GymnaxState, action: jax.Array, keys: jax.Array) -> tuple[GymnaxState, TimeStep]:
        """See ``Environment.step``."""

        def step_one(key, inner, action, own):
            observation, inner, reward, terminated, truncated, info = self._env.step(
                key, inner, action, self._params_of(own)
            )
            first, last = self._as_array(observation), self._as_array(info["final_observation"])
            if own is not None:
                reward = own.rewarded(reward, last)
            return inner, first, last, jnp.float32(reward), jnp.bool_(terminated), jnp.bool_(truncated)

        inner, first, last, reward, terminated, truncated = jax.vmap(step_one)(keys, state.inner, action, state.own)
        valid = ~state.pending
        terminated, truncated = terminated & valid, truncated & valid
        time_step = TimeStep(
            observation=_where(valid, last, state.next_observation),
            reward=jnp.where(valid, reward, 0.0),
            reward_scale=None if state.own is None else state.own.reward_scale,
            terminated=terminated,
            truncated=truncated,
            valid=valid,
        )
        # `first` is read only where an episode has just ended, so it needs no selection.
        inner = jax.tree.map(lambda new, old: _where(valid, _like(new, old), old), inner, state.inner)
        return GymnaxState(inner, first, terminated | truncated, state.own), time_step

    def _params_of(self, own: Deviations | None) -> Any:
        return self._params if own is None else self._params.replace(**own.params)

    def _reset_traceable(self, keys: jax.Array) -> tuple[GymnaxState, TimeStep]:
        own = None if self._deviations is None else jax.tree.map(jnp.asarray, self._deviations)
        observation, inner = jax.vmap(lambda key, own: self._env.reset(key, self._params_of(own)))(keys, own)
        observation = jax.vmap(self._as_array)(observation)
        none = jnp.zeros(keys.shape[0], bool)
        scale = None if own is None else own.reward_scale
        time_step = TimeStep(observation, jnp.zeros(keys.shape[0], jnp.float32), none, none, none, scale)
        # Weak types (a Python 0 in gymnax's state) would make the second step compile again.
        inner = jax.tree.map(lambda leaf: _like(leaf, leaf), inner)
        return GymnaxState(inner, observation, none, own), time_step


def _observation_converter(env: Any, params: Any, name: str) -> Callable[[Any], jax.Array]:
    """How one observation becomes one vector or one channels-last image: float32, or uint8 for byte images."""
    leaves = jax.tree.leaves(jax.eval_shape(lambda key: env.reset(key, params)[0], jax.random.key(0)))
    if len(leaves) != 1:
        raise InvalidInput(
            "env", name, f"an environment whose observation is one array (this one's has {len(leaves)} parts)"
        )
    (leaf,) = leaves
    categories = getattr(env.observation_space(params), "n", None)
    if leaf.ndim == 0 and categories is not None:
        return lambda observation: jax.nn.one_hot(_only(observation), int(categories), dtype=jnp.float32)
    is_image = leaf.ndim == 3
    shape = leaf.shape if is_image else (leaf.size,)
    dtype = jnp.uint8 if is_image and leaf.dtype == jnp.uint8 else jnp.float32
    return lambda observation: jnp.asarray(_only(observation), dtype).reshape(shape)


def _check_protocol(env: Any, params: Any, name: str) -> None:
    """Refuse an environment of an older gymnax at construction, where the message can still say so."""

    def one_step(key):
        _, state = env.reset(key, params)
        return env.step(key, state, jnp.int32(0), params)

    result = jax.eval_shape(one_step, jax.random.key(0))
    if len(result) != 6 or "final_observation" not in result[5]:
        raise InvalidInput(
            "env",
            name,
            "an environment of gymnax 1.0's protocol: step returns (observation, state, reward, terminated, "
            "truncated, info) with info['final_observation']",
        )


def _only(tree: Any) -> jax.Array:
    (leaf,) = jax.tree.leaves(tree)
    return leaf


def _like(new: jax.Array, old: jax.Array) -> jax.Array:
    """``new`` with the dtype of ``old`` and no weak type; PRNG keys pass."""
    return new if jnp.issubdtype(old.dtype, jax.dtypes.extended) else jax.lax.convert_element_type(new, old.dtype)


def _where(mask: jax.Array, on_true: jax.Array, on_false: jax.Array) -> jax.Array:
    """``jnp.where`` with a [n] mask over arrays [n, ...]."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (on_true.ndim - 1)), on_true, on_false)


def _plain(params: Any) -> dict[str, Any]:
    """Parameters as JSON-able values; what is neither a number nor a list of them becomes its text."""
    if not dataclasses.is_dataclass(params):
        return {"repr": repr(params)}
    values = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
    return {
        key: value if isinstance(value, bool | int | float | str) else _plain_array(value)
        for key, value in values.items()
    }


def _plain_array(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else repr(value)
