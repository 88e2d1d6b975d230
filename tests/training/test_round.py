"""The compiled round against loops in NumPy, against itself on other layouts, and against what it promises to send."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.training import round as round_module
from admm_jax.training.rules import spelled_out
from tests.compilations import Compilations
from tests.training.builders import build, cartpole
from tests.training.reference import reference_rounds

ROUNDS = 2


@pytest.fixture(scope="module")
def expected():
    run = build(spelled_out(cartpole()))
    return reference_rounds(run, ROUNDS)


@pytest.fixture(scope="module")
def expected_of_normalized():
    return reference_rounds(build(spelled_out(cartpole(normalize_observations=True))), 3)


LAYOUTS = [(1, "vmap"), (1, "map"), (2, "vmap"), (4, "map"), (8, "vmap")]


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "mapping"), LAYOUTS)
def test_two_cartpole_rounds_equal_the_numpy_loop(expected, devices, mapping, monkeypatch):
    seen = []

    def spying(*arguments, **settings):
        result = rollout(*arguments, **settings)
        # Workers of one device are an axis, devices call back one by one: note which worker came first.
        jax.debug.callback(note, round_module.local_workers(8 // devices), result[3].action)
        return result

    def note(workers, actions):
        seen.append((int(workers[0]), np.asarray(actions)))

    rollout = round_module.rollout
    monkeypatch.setattr(round_module, "rollout", spying)
    run = build(cartpole(worker_mapping=mapping), devices)
    run.rounds(1)
    jax.effects_barrier()
    first = np.concatenate([actions for _, actions in sorted(seen, key=lambda pair: pair[0])], axis=1)
    np.testing.assert_array_equal(first, expected["actions"])
    run.rounds(ROUNDS - 1)
    np.testing.assert_allclose(run.z, expected["z"], atol=1e-5)
    np.testing.assert_allclose(run.state.consensus.workers.scaled_dual, expected["dual"], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "mapping"), [(1, "vmap"), (8, "map")])
def test_normalised_rounds_equal_the_numpy_loop(expected_of_normalized, devices, mapping):
    expected = expected_of_normalized
    run = build(cartpole(worker_mapping=mapping, normalize_observations=True), devices)
    run.rounds(3)
    moments = run.state.moments
    assert moments.count == run.state.counters.env_steps
    np.testing.assert_allclose(moments.mean, expected["center"], atol=1e-5)
    np.testing.assert_allclose(np.sqrt(moments.variance), expected["deviation"], rtol=1e-4)
    np.testing.assert_allclose(run.z, expected["z"], atol=1e-5)


@pytest.mark.slow
def test_one_compilation_serves_all_rounds():
    run = build(cartpole(anneal_steps=5000))
    with Compilations() as first:
        run.rounds(1)
    with Compilations() as later:
        run.rounds(3)
    assert first.count > 0
    assert later.count == 0


def all_reduced_numbers(text: str) -> tuple[int, int]:
    """(numbers in all-reduces outside of branches, largest all-reduce) of an optimised HLO module."""
    sizes = []
    for line in text.splitlines():
        if re.search(r"= .*\ball-reduce(-start)?\(", line):
            shapes = re.findall(r"(?:f32|s32|u32|pred|f64)\[([\d,]*)\]", line.split(" all-reduce")[0])
            sizes += [int(np.prod([int(n) for n in shape.split(",") if n])) for shape in shapes]
    return sum(sizes), max(sizes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "vectors"),
    [
        ({}, 2),
        ({"share_moment_every": 0}, 1),
        ({"normalize_advantages": "global", "normalize_observations": True}, 2),
    ],
)
def test_what_eight_devices_all_reduce(changes, vectors):
    run = build(cartpole(**changes), devices=8)
    text = run.step.lower(run.state).compile().as_text()
    numbers, _ = all_reduced_numbers(text)
    size = run.model.size
    scalars = numbers - vectors * size
    # CartPole's observation has 4 numbers: its moments cost a count and 2 x 4 sums.
    assert 0 < scalars < 60, f"{numbers} numbers all-reduced, {size} parameters"
    assert "all-gather" not in text
    assert "all-to-all" not in text


@pytest.mark.slow
def test_one_worker_with_fedavg_or_gradient_is_plain_ppo():
    plain = [build(cartpole(workers=1, rule=rule, envs_per_worker=3)) for rule in ("fedavg", "gradient")]
    for run in plain:
        run.rounds(2)
    np.testing.assert_allclose(plain[0].z, plain[1].z, atol=1e-6)


@pytest.mark.slow
def test_one_worker_has_no_dual():
    run = build(cartpole(workers=1, envs_per_worker=3, kappa=0.8))
    rows = run.rounds(2)
    assert rows[-1]["scaled_dual_norm"] == 0
    assert rows[-1]["primal_residual"] == 0
    assert rows[-1]["update_cosine"] == 0


@pytest.mark.slow
def test_synchronous_workers_stay_equal():
    run = build(cartpole(rule="gradient", workers=4), devices=2)
    rows = run.rounds(2)
    assert rows[-1]["primal_residual"] < 1e-5
    assert rows[-1]["kl_to_z"] < 1e-7
    assert rows[-1]["update_cosine"] == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["admm", "fedavg"])
def test_a_worker_with_numbers_that_are_not_finite_is_left_out(rule):
    run, twin = build(cartpole(rule=rule)), build(cartpole(rule=rule))
    run.rounds(1)
    twin.rounds(1)
    poisoned = jax.tree.map(lambda leaf: leaf.at[2].set(jnp.nan), run.state.adam.mu)
    run.state = run.state._replace(adam=run.state.adam._replace(mu=poisoned))
    before = np.asarray(run.state.consensus.workers.contribution)[2]
    row = run.rounds(1)[0]
    assert row["failed_workers"] == 1
    workers = run.state.consensus.workers
    assert np.isfinite(run.z).all()
    np.testing.assert_array_equal(np.asarray(workers.failures), np.eye(8, dtype=int)[2])
    np.testing.assert_array_equal(workers.contribution[2], before)
    np.testing.assert_array_equal(workers.theta[2], run.z)
    assert all((np.asarray(leaf)[2] == 0).all() for leaf in jax.tree.leaves(run.state.adam.mu))
    for leaf in jax.tree.leaves(run.state.adam.nu):
        assert np.isfinite(leaf).all()
        np.testing.assert_array_equal(leaf[2], leaf[3])  # takes the shared second moment
    again = run.rounds(1)[0]
    assert again["failed_workers"] == 0
    assert np.asarray(run.state.consensus.workers.failures).sum() == 0


@pytest.mark.slow
def test_if_every_worker_fails_the_consensus_stays():
    run = build(cartpole())
    run.rounds(1)
    z = np.asarray(run.z)
    poisoned = jax.tree.map(lambda leaf: leaf * jnp.nan, run.state.adam.nu)
    run.state = run.state._replace(adam=run.state.adam._replace(nu=poisoned))
    row = run.rounds(1)[0]
    assert row["failed_workers"] == 8
    np.testing.assert_allclose(run.z, z, atol=1e-6)


@pytest.mark.slow
def test_several_rollouts_per_round():
    run = build(cartpole(rollouts_per_round=3, share_moment_every=2))
    rows = run.rounds(2)
    assert np.asarray(run.state.adam.count).tolist() == [2 * 3 * 6] * 8
    assert 0 < rows[-1]["env_steps"] <= 2 * 3 * 12 * 2 * 8
    # Shared after the second round only.
    leaf = jax.tree.leaves(run.state.adam.nu)[-1]
    np.testing.assert_array_equal(leaf[0], leaf[7])


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["worker", "global", "none"])
def test_scopes_of_advantage_normalisation(scope):
    alone = build(cartpole(workers=4, normalize_advantages=scope))
    spread = build(cartpole(workers=4, normalize_advantages=scope), devices=4)
    alone.rounds(1)
    spread.rounds(1)
    np.testing.assert_allclose(alone.z, spread.z, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"rule": "easgd", "elasticity": 0.7}, {"rule": "diloco", "outer_lr": 0.5}, {"order": "dual_first"}],
    ids=["easgd", "diloco", "dual-first"],
)
def test_devices_do_not_change_other_rules(changes):
    alone, spread = build(cartpole(workers=4, **changes)), build(cartpole(workers=4, **changes), devices=4)
    alone.rounds(2)
    spread.rounds(2)
    np.testing.assert_allclose(alone.z, spread.z, atol=1e-5)
    np.testing.assert_allclose(alone.state.consensus.workers.theta, spread.state.consensus.workers.theta, atol=1e-5)
