"""Every suite's cells are runs that differ in the algorithm alone."""

import pytest

from admm_jax.comparison import SUITES, Cell
from admm_jax.errors import InvalidInput
from admm_jax.training.rules import RULES

# What an algorithm is made of; everything else is the same within a suite.
OF_THE_ALGORITHM = {
    "rule", "loss", "inner", "kappa", "restart", "over_relaxation", "dual_leak", "order", "elasticity", "outer_lr",
    "outer_momentum", "share_moment_every", "push", "shared_optimizer", "fetch_every", "history", "max_staleness",
    "delays", "clip", "clip_value", "local_epochs",
}  # fmt: skip
OF_ASYNCHRONOUS_ONES = {
    "envs_per_worker", "rollout", "rollouts_per_round", "minibatches", "max_grad_norm", "gae_lambda",
    "normalize_advantages",
}  # fmt: skip


@pytest.mark.parametrize("name", SUITES)
def test_cells_differ_in_the_algorithm_alone(name):
    suite = SUITES[name]
    references = {}
    assert len(set(suite.cells)) == len(suite.cells)
    assert len({(cell.rule, cell.loss, cell.variant) for cell in suite.cells}) == len(suite.cells)
    for cell in suite.cells:
        reference = references.setdefault(suite.config(cell).env, suite.config(cell).to_json())
        config = suite.config(cell).to_json()
        different = {field for field in config if config[field] != reference[field]}
        allowed = OF_THE_ALGORITHM | {field for field, _ in cell.changes}
        if cell.rule == "a3c":
            allowed |= OF_ASYNCHRONOUS_ONES
        assert different <= allowed, cell


def test_the_quick_suite_has_every_rule():
    assert {cell.rule for cell in SUITES["quick"].cells} == set(RULES)


def test_asking_for_rules_and_losses():
    suite = SUITES["jax-pong"]
    assert suite.chosen(["fedavg"]) == (Cell("fedavg", "ppo"),)
    assert suite.chosen(["easgd", "a3c"]) == (Cell("a3c", "a2c"), Cell("easgd", "ppo"))
    assert suite.chosen(["admm"], ["vtrace"]) == (Cell("admm", "vtrace"),)
    assert suite.chosen([], ["a2c"]) == (Cell("a3c", "a2c"),)


@pytest.mark.parametrize(
    ("rules", "losses", "field", "nearest"),
    [(["adm"], [], "rules", "admm"), ([], ["pp0"], "losses", "ppo")],
)
def test_unknown_names_are_recognised(rules, losses, field, nearest):
    with pytest.raises(InvalidInput, match=f"did you mean {nearest}") as caught:
        SUITES["quick"].chosen(rules, losses)
    assert caught.value.field == field


def test_workers_and_spread_can_be_set():
    suite = SUITES["heterogeneous"]
    config = suite.config(suite.cells[0], workers=6, spread=0.25)
    assert (config.workers, config.spread, config.heterogeneity) == (6, 0.25, "physics")
    plain = SUITES["quick"].config(Cell("admm", "ppo"), spread=0.5)
    assert (plain.heterogeneity, plain.spread) == ("physics", 0.5)
