"""Bytes by hand."""

import pytest

from admm_jax.analysis import Uplink


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({"averages_gradients": False, "share_moment_every": 0}, [100, 100, 100]),
        ({"averages_gradients": False, "share_moment_every": 1}, [200, 200, 200]),
        ({"averages_gradients": False, "share_moment_every": 3}, [100, 100, 200]),
        ({"averages_gradients": True, "share_moment_every": 0}, [800, 800, 800]),
        ({"averages_gradients": False, "share_moment_every": 2, "scalars_per_round": 6}, [106, 206, 106]),
        ({"averages_gradients": False, "share_moment_every": 1, "observation_size": 12}, [225, 225, 225]),
    ],
)
def test_numbers_of_the_first_rounds(settings, numbers):
    uplink = Uplink(size=100, steps_per_round=7, **settings)
    assert [uplink.numbers(index) for index in range(3)] == numbers
    assert uplink.bytes(2) == 4 * numbers[2]
