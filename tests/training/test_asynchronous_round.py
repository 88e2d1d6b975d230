"""The round of a parameter server against a loop in NumPy, on other layouts, and its settings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.consensus import STALENESS_EDGES
from admm_jax.errors import InvalidInput
from admm_jax.parallel import Stream, stream_key, worker_keys
from admm_jax.training.config import TrainConfig
from admm_jax.training.defaults import default_config
from admm_jax.training.rules import spelled_out
from tests.training.builders import build, cartpole

TICKS = 4


def a3c(**changes):
    """Four workers with an environment each, rollouts of 5, four ticks in a round."""
    settings = {
        "rule": "a3c",
        "loss": "a2c",
        "workers": 4,
        "envs_per_worker": 1,
        "rollout": 5,
        "rollouts_per_round": TICKS,
        "local_epochs": 1,
        "minibatches": 1,
        "max_grad_norm": 0.4,
        "gae_lambda": 1.0,
        "normalize_advantages": "none",
        "fetch_every": 2,
        "delays": (0, 3, 1, 0),
        "lr": 0.02,
    }
    return spelled_out(cartpole(**(settings | changes)))


def reference(run, rounds):
    """z, the workers' parameters and stamps after so many rounds of gradient pushes, as plain loops."""
    config, environment, model = run.config, run.environment, run.model
    count = config.workers
    network = jax.jit(model.apply)
    env_step = jax.jit(environment.step)
    env_state, observation = run.state.environment, np.asarray(run.state.observation)

    @jax.jit
    @jax.grad
    def gradient(theta, seen, action, advantage, target, valid):
        logits, value = model.apply(theta, seen)
        log_pi = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_pi, action[:, None], axis=1)[:, 0]
        entropy = -(jnp.exp(log_pi) * log_pi).sum(axis=1)
        loss = -chosen * advantage + config.value_weight * 0.5 * (value - target) ** 2 - config.entropy_weight * entropy
        return jnp.where(valid, loss, 0).sum() / jnp.maximum(valid.sum(), 1)

    z = np.asarray(run.params, np.float64)
    mu, nu, steps, version = np.zeros_like(z), np.zeros_like(z), 0, 0
    theta = np.tile(z, (count, 1))
    stamps, pushes, past = np.zeros(count, int), np.zeros(count, int), [(z, 0)]
    for index in range(rounds):
        base = worker_keys(config.seed, jnp.arange(count), jnp.asarray(index))
        orders = jax.random.fold_in(stream_key(config.seed, Stream.SCRIPT), index)
        for tick in range(config.rollouts_per_round):
            keys = [jax.random.fold_in(jax.random.fold_in(base[i], tick), 0) for i in range(count)]
            rows = []
            for time in range(config.rollout):
                actions, values, env_keys = [], [], []
                for i in range(count):
                    first, rest = jax.random.split(jax.random.fold_in(keys[i], time), 2)
                    logits, value = network(jnp.float32(theta[i]), observation[i])
                    actions.append(int(jax.random.categorical(first, logits)[0]))
                    values.append(float(value[0]))
                    env_keys.append(rest)
                env_state, now = env_step(env_state, jnp.asarray(actions, jnp.int32), jnp.stack(env_keys))
                rows.append((observation[:, 0], actions, values, now))
                observation = np.asarray(now.observation)[:, None]
            grads = []
            for i in range(count):
                after = float(network(jnp.float32(theta[i]), observation[i])[1][0])
                # Plain discounted returns, bootstrapped at the end and wherever an episode was cut off.
                targets = np.zeros(config.rollout)
                for time in reversed(range(config.rollout)):
                    now = rows[time][3]
                    if not now.valid[i]:
                        after = rows[time][2][i]
                        continue
                    if now.truncated[i]:
                        after = rows[time + 1][2][i] if time + 1 < config.rollout else after
                    after = float(now.reward[i]) + (0.0 if now.terminated[i] else config.gamma * after)
                    targets[time] = after
                valid = np.array([bool(row[3].valid[i]) for row in rows])
                values = np.array([row[2][i] for row in rows])
                advantage = np.where(valid, targets - values, 0)
                g = gradient(
                    jnp.float32(theta[i]),
                    np.stack([row[0][i] for row in rows]),
                    np.array([row[1][i] for row in rows]),
                    jnp.float32(advantage),
                    jnp.float32(targets),
                    valid,
                )
                g = np.asarray(g, np.float64)
                grads.append(g * min(1.0, config.max_grad_norm / np.linalg.norm(g)))
            new_theta = theta.copy()
            for i in np.asarray(jax.random.permutation(jax.random.fold_in(orders, tick), count)):
                assert version - stamps[i] <= config.max_staleness
                steps, version = steps + 1, version + 1
                mu = 0.9 * mu + 0.1 * grads[i]
                nu = 0.999 * nu + 0.001 * grads[i] ** 2
                z = z - config.lr * (mu / (1 - 0.9**steps)) / (np.sqrt(nu / (1 - 0.999**steps)) + config.adam_eps)
                pushes[i] += 1
                if pushes[i] == config.fetch_every:
                    delay = config.delays[i]
                    new_theta[i], stamps[i] = past[max(len(past) - delay, 0)] if delay else (z, version)
                    pushes[i] = 0
            theta = new_theta
            past.append((z, version))
    return z, theta, stamps


@pytest.fixture(scope="module")
def expected():
    return reference(build(a3c()), 2)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "mapping"), [(1, "vmap"), (4, "map"), (2, "vmap")])
def test_two_rounds_equal_the_numpy_loop(expected, devices, mapping):
    z, theta, stamps = expected
    run = build(a3c(worker_mapping=mapping), devices)
    rows = [run.step(run.state)]
    run.state = rows[0][0]
    run.state, metrics = run.step(run.state)
    np.testing.assert_allclose(run.z, z, atol=2e-5)
    np.testing.assert_allclose(run.state.consensus.workers.theta, theta, atol=2e-5)
    np.testing.assert_array_equal(run.state.consensus.workers.version, stamps)
    assert metrics["applied_pushes"] == 4 * TICKS
    assert metrics["fetches"] == 4 * TICKS // 2
    assert metrics["staleness_histogram"].shape == (len(STALENESS_EDGES),)
    assert metrics["staleness_histogram"].sum() == 4 * TICKS
    assert run.state.adam is None


@pytest.fixture(scope="module")
def with_deltas():
    run = build(a3c(push="delta", local_epochs=2, delays=None, fetch_every=3))
    start = np.asarray(run.z)
    run.state, metrics = run.step(run.state)
    return run, start, jax.device_get(metrics)


@pytest.mark.slow
def test_deltas_add_up(with_deltas):
    run, start, metrics = with_deltas
    assert metrics["applied_pushes"] == 4 * TICKS
    assert metrics["fetches"] == 4
    assert np.asarray(run.state.adam.count).tolist() == [2 * TICKS] * 4
    assert np.abs(np.asarray(run.z) - start).max() > 1e-3
    assert metrics["primal_residual"] > 0


@pytest.mark.slow
def test_a_worker_whose_push_is_not_finite_starts_again(with_deltas):
    run, _, _ = with_deltas
    state = jax.tree.map(jnp.copy, run.state)
    poisoned = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), state.adam.mu)
    state, metrics = run.step(state._replace(adam=state.adam._replace(mu=poisoned)))
    assert metrics["failed_workers"] == 1
    assert np.isfinite(state.consensus.shared.z).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.adam, state.consensus.workers.theta)))
    assert np.asarray(state.consensus.workers.failures).tolist() == [0] * 4  # its later pushes were fine


@pytest.mark.slow
def test_one_worker_with_rmsprop_pushes_what_it_learns():
    run = build(a3c(workers=1, shared_optimizer="rmsprop", fetch_every=1, delays=None))
    start = np.asarray(run.params)
    run.state, metrics = run.step(run.state)
    np.testing.assert_allclose(run.state.consensus.workers.theta[0], run.z, atol=1e-7)
    assert metrics["staleness_mean"] == 0
    assert metrics["kl_to_z"] == pytest.approx(0, abs=1e-7)
    assert metrics["entropy_spread"] == pytest.approx(0, abs=1e-3)
    assert np.abs(np.asarray(run.z) - start).max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"push": "delta", "shared_optimizer": "adam"}, "shared_optimizer"),
        ({"shared_optimizer": "sgd"}, "shared_optimizer"),
        ({"fetch_every": 0}, "fetch_every"),
        ({"delays": (0, 1)}, "delays"),
        ({"delays": (0, 5, 0, 0), "history": 3}, "delays"),
        ({"max_staleness": -3}, "max_staleness"),
        ({"kappa": 0.2}, "kappa"),
        ({"share_moment_every": 2}, "share_moment_every"),
        ({"minibatches": 5}, "minibatches"),
        ({"local_epochs": 2}, "local_epochs"),
        ({"normalize_advantages": "global"}, "normalize_advantages"),
        ({"rule": "admm", "push": None}, "fetch_every"),
    ],
)
def test_what_does_not_belong_is_refused(changes, field):
    settings = a3c().to_json() | {"shared_optimizer": None, "history": None} | changes
    with pytest.raises(InvalidInput) as caught:
        TrainConfig.from_json(settings)
    assert caught.value.field == field


def test_a_misspelled_rule_is_recognised():
    with pytest.raises(InvalidInput, match=r"did you mean a3c\?"):
        TrainConfig(rule="a3cc")


def test_defaults_are_those_of_the_paper():
    config = default_config("gymnax:CartPole-v1", rule="a3c")
    assert (config.loss, config.rollout, config.envs_per_worker, config.max_grad_norm) == ("a2c", 5, 1, 40.0)
    assert spelled_out(config).fetch_every == 5
    assert config.updates_per_round == config.rollouts_per_round
    assert not config.learns_locally
    assert spelled_out(TrainConfig(rule="a3c", push="delta")).learns_locally
