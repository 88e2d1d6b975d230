"""The ledger against the collectives in the program that is compiled."""

import jax
import numpy as np
import pytest

from admm_jax.training.ledger import make_ledger
from tests.training.builders import build, cartpole


def summed_over_devices(jaxpr, times: int = 1) -> int:
    """Numbers that a program sums over devices, loops counted as often as they run."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name.startswith("psum"):
            total += times * sum(int(np.prod(variable.aval.shape)) for variable in equation.invars)
        inside = times * equation.params["length"] if equation.primitive.name == "scan" else times
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            nested = getattr(value, "jaxpr", value)
            if hasattr(nested, "eqns"):
                total += summed_over_devices(nested, inside)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rule": "fedavg", "share_moment_every": 0},
        {"rule": "fedprox", "normalize_advantages": "global", "rollouts_per_round": 2},
        {"rule": "easgd", "normalize_observations": True},
        {"rule": "diloco"},
        {"rule": "gradient"},
    ],
    ids=lambda changes: changes.get("rule", "admm"),
)
def test_rounds_sum_what_the_ledger_says_and_a_handful_of_scalars(changes):
    config = cartpole(**changes)
    run = build(config, devices=2)
    ledger = make_ledger(config, run.model.size, run.environment.spec)
    numbers = summed_over_devices(jax.make_jaxpr(run.step)(run.state).jaxpr)
    exchanges = ledger.exchanged(0)
    beyond = numbers - sum(exchanges)
    assert sum(exchanges) >= run.model.size * len(exchanges)
    # Metrics, residuals, and the sum of weights that each mean is divided by.
    assert 0 < beyond < 60 + 2 * len(exchanges), f"{numbers} numbers, {sum(exchanges)} in the ledger"


def test_a_server_is_told_every_push():
    config = cartpole(rule="a3c", loss="a2c", local_epochs=1, minibatches=1, rollouts_per_round=3)
    run = build(config, devices=2)
    ledger = make_ledger(config, run.model.size, run.environment.spec)
    assert ledger.uplink_bytes(0) == 4 * 3 * run.model.size
    # Devices gather all workers' pushes, each tick, as a sum of vectors that are 0 elsewhere.
    numbers = summed_over_devices(jax.make_jaxpr(run.step)(run.state).jaxpr)
    pushed = config.workers * ledger.uplink_bytes(0) // 4
    assert pushed < numbers < pushed + 60 + 3 * 8 * config.workers
