"""Messages that a user can act on."""

import pytest

from admm_jax.errors import InvalidInput, at_least, finite, nearest


def test_the_message_names_field_value_and_range():
    assert "rho = -1 is not allowed: rho must be positive" in str(InvalidInput("rho", -1, "positive"))


def test_nearest_ignores_case():
    assert nearest("cartpole", ["Acrobot", "CartPole", "Pendulum"])[0] == "CartPole"
    assert nearest("zzz", ["Acrobot"]) == []


@pytest.mark.parametrize("value", [0, -4, 2.5, True, float("nan")])
def test_whole_numbers(value):
    with pytest.raises(InvalidInput, match="whole number of at least 1"):
        at_least("count", value, 1)


@pytest.mark.parametrize(
    ("value", "limits", "phrase"),
    [
        (float("nan"), {"low": 0}, ">= 0"),
        (float("inf"), {"above": 0}, "> 0"),
        (0.0, {"above": 0}, "> 0"),
        (1.2, {"low": 0, "high": 1}, ">= 0 and <= 1"),
    ],
)
def test_finite_numbers(value, limits, phrase):
    with pytest.raises(InvalidInput, match=phrase):
        finite("x", value, **limits)


def test_values_inside_pass():
    at_least("count", 3, 3)
    finite("x", 1.0, low=1, high=1)
