"""The round of proximal ADMM with PPO as plain loops in NumPy, apart from network, its gradient and the environment.

Written from the equations, to be compared with the compiled round: rollouts step by step, workers one after the other,
advantages, Adam, pull, shared second moment, exchange and penalty by hand.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from admm_jax.parallel import worker_keys
from tests.training.builders import Built

BETA1, BETA2 = 0.9, 0.999


def reference_rounds(run: Built, count: int) -> dict[str, np.ndarray]:
    """z and scaled duals after ``count`` rounds, and all actions of the first rollout [T, W, E]."""
    config, environment, model = run.config, run.environment, run.model
    workers, envs_each, length = config.workers, config.envs_per_worker, config.rollout
    steps = config.local_epochs * config.minibatches
    c = np.expm1(config.kappa / steps)
    z = np.asarray(run.params, np.float64)
    dual = np.zeros((workers, z.size))
    mu, nu, adam_count, penalty = np.zeros((workers, z.size)), np.zeros((workers, z.size)), 0, None
    env_state, observation = run.state.environment, np.asarray(run.state.observation)
    network = jax.jit(model.apply)
    gradient = jax.jit(jax.grad(lambda theta, batch: _ppo(model, config, theta, batch)))
    env_step = jax.jit(environment.step)
    first_actions, everything = None, np.zeros((0, *observation.shape[2:]))
    center, deviation = np.zeros(observation.shape[2:]), np.ones(observation.shape[2:])

    def as_seen(raw):
        if not config.normalize_observations:
            return raw
        return np.float32(np.clip((raw - center) / (deviation + 1e-4), -5, 5))

    for index in range(count):
        base = worker_keys(config.seed, jnp.arange(workers), jnp.asarray(index))
        rollout_keys = [jax.random.fold_in(base[i], 0) for i in range(workers)]
        rows = []
        theta = np.tile(z, (workers, 1))
        for time in range(length):
            actions, log_probs, values, env_keys = [], [], [], []
            for i in range(workers):
                keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(rollout_keys[i], 0), time), envs_each + 1)
                logits, value = network(jnp.float32(theta[i]), as_seen(observation[i]))
                action = jax.random.categorical(keys[0], logits)
                log_pi = jax.nn.log_softmax(logits)
                actions.append(np.asarray(action))
                log_probs.append(np.asarray([log_pi[e, action[e]] for e in range(envs_each)]))
                values.append(np.asarray(value))
                env_keys.append(keys[1:])
            flat = jnp.asarray(np.concatenate(actions), jnp.int32)
            env_state, outcome = env_step(env_state, flat, jnp.concatenate(env_keys))
            shape = (workers, envs_each)
            rows.append(
                {
                    "observation": observation,
                    "seen": as_seen(observation),
                    "action": np.stack(actions),
                    "log_prob": np.stack(log_probs),
                    "value": np.stack(values),
                    "reward": np.asarray(outcome.reward).reshape(shape),
                    "terminated": np.asarray(outcome.terminated).reshape(shape),
                    "truncated": np.asarray(outcome.truncated).reshape(shape),
                    "valid": np.asarray(outcome.valid).reshape(shape),
                }
            )
            observation = np.asarray(outcome.observation).reshape(*shape, *outcome.observation.shape[1:])
        if first_actions is None:
            first_actions = np.stack([row["action"] for row in rows])
        last = [network(jnp.float32(theta[i]), as_seen(observation[i]))[1] for i in range(workers)]
        last_value = np.stack([np.asarray(value) for value in last])
        advantage = _advantages(rows, last_value, config.gamma, config.gae_lambda)

        for i in range(workers):
            batch = {
                name: np.concatenate([row[name][i] for row in rows]) for name in ("seen", "action", "log_prob", "valid")
            }
            batch["advantage"] = advantage[:, i].reshape(-1)
            values = np.concatenate([row["value"][i] for row in rows])
            batch["target"] = np.where(batch["valid"], batch["advantage"] + values, 0)
            order_key = jax.random.fold_in(jax.random.fold_in(base[i], 0), 1)
            t = adam_count
            for epoch_key in jax.random.split(order_key, config.local_epochs):
                order = np.asarray(jax.random.permutation(epoch_key, length * envs_each))
                for chosen in np.split(order, config.minibatches):
                    part = {name: value[chosen] for name, value in batch.items()}
                    part["advantage"] = _normalized(part["advantage"], part["valid"])
                    g = np.asarray(gradient(jnp.float32(theta[i]), part), np.float64)
                    g *= min(1.0, config.max_grad_norm / np.linalg.norm(g))
                    t += 1
                    mu[i] = BETA1 * mu[i] + (1 - BETA1) * g
                    nu[i] = BETA2 * nu[i] + (1 - BETA2) * g**2
                    metric = np.sqrt(nu[i] / (1 - BETA2**t)) + config.adam_eps
                    theta[i] -= config.lr * (mu[i] / (1 - BETA1**t)) / metric
                    theta[i] = (theta[i] + c * (z - dual[i])) / (1 + c)
        adam_count += steps
        everything = np.concatenate([everything, *[row["observation"][row["valid"]] for row in rows]])
        center, deviation = everything.mean(axis=0), everything.std(axis=0)

        nu[:] = nu.mean(axis=0)
        next_penalty = c * (np.sqrt(nu[0] / (1 - BETA2**adam_count)) + config.adam_eps) / config.lr
        penalty = next_penalty if penalty is None else penalty
        z = (theta + dual).mean(axis=0)
        dual = (dual + theta - z) * penalty / next_penalty
        penalty = next_penalty
    return {"z": z, "dual": dual, "actions": first_actions, "center": center, "deviation": deviation}


def _advantages(rows: list[dict], last_value: np.ndarray, gamma: float, lambda_: float) -> np.ndarray:
    values = [row["value"] for row in rows] + [last_value]
    advantage = np.zeros((len(rows), *last_value.shape))
    for where in np.ndindex(last_value.shape):
        carried = 0.0
        for time in reversed(range(len(rows))):
            row = {name: value[where] for name, value in rows[time].items() if name not in ("observation", "seen")}
            if not row["valid"]:
                carried = 0.0
                continue
            future = 0.0 if row["terminated"] else gamma * values[time + 1][where]
            if row["terminated"] or row["truncated"]:
                carried = 0.0
            carried = row["reward"] + future - row["value"] + gamma * lambda_ * carried
            advantage[time][where] = carried
    return advantage


def _normalized(advantage: np.ndarray, valid: np.ndarray) -> np.ndarray:
    used = advantage[valid]
    return np.where(valid, (advantage - used.mean()) / (used.std() + 1e-8), 0).astype(np.float32)


def _ppo(model, config, theta, batch):
    logits, value = model.apply(theta, batch["seen"])
    log_pi = jax.nn.log_softmax(logits)
    ratio = jnp.exp(jnp.take_along_axis(log_pi, batch["action"][:, None], axis=1)[:, 0] - batch["log_prob"])
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    gain = jnp.minimum(ratio * batch["advantage"], clipped * batch["advantage"])
    error = 0.5 * (value - batch["target"]) ** 2
    entropy = -(jnp.exp(log_pi) * log_pi).sum(axis=1)
    per_step = -gain + config.value_weight * error - config.entropy_weight * entropy
    return jnp.where(batch["valid"], per_step, 0).sum() / batch["valid"].sum()
