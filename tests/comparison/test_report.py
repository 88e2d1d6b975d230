"""Which runs a difference is taken to, and what a table says of seeds."""

import pytest

from admm_jax.comparison.report import _difference, _reference, grouped


def rows(rule, variant, scores, loss="ppo"):
    return [
        {"rule": rule, "loss": loss, "variant": variant, "seed": seed, "eval_return_mean": score}
        for seed, score in enumerate(scores)
    ]


GROUPS = grouped(
    rows("admm", "96 steps", [5, 7]) + rows("fedavg", "96 steps", [1, 3]) + rows("admm", "96 steps, kappa 3", [6, 6])
    + rows("admm", "default", [9, 9]) + rows("a3c", "t_max 20", [2, 2], "a2c")
)  # fmt: skip


@pytest.mark.parametrize(
    ("group", "reference"),
    [
        (("fedavg", "ppo", "96 steps"), ("admm", "ppo", "96 steps")),
        (("admm", "ppo", "96 steps, kappa 3"), ("admm", "ppo", "96 steps")),
        (("a3c", "a2c", "t_max 20"), ("admm", "ppo", "default")),
        (("admm", "ppo", "default"), ("admm", "ppo", "default")),
    ],
)
def test_differences_are_taken_to_the_nearest_admm(group, reference):
    assert _reference(group, GROUPS) == reference


def test_without_admm_there_is_no_difference():
    alone = grouped(rows("fedavg", "default", [1, 2]))
    assert _reference(("fedavg", "ppo", "default"), alone) is None
    assert _difference("eval_return_mean", ("fedavg", "ppo", "default"), None, alone) == ""


def test_a_difference_has_a_sign_and_an_interval():
    text = _difference("eval_return_mean", ("fedavg", "ppo", "96 steps"), ("admm", "ppo", "96 steps"), GROUPS)
    assert text == "-4.0 (-6.0 to -2.0)"


def test_groups_are_in_the_order_of_seeds():
    backwards = grouped(list(reversed(rows("admm", "default", [1, 2, 3]))))
    assert [row["seed"] for row in backwards["admm", "ppo", "default"]] == [0, 1, 2]
