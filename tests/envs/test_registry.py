"""Names: what is known, what was probably meant."""

import sys

import gymnax
import pytest

from admm_jax import envs
from admm_jax.envs.jax_pong import JaxPong
from admm_jax.errors import InvalidInput


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Pong-v5", "atari"),
        ("SpaceInvaders-v5", "atari"),
        ("gymnax:CartPole-v1", "gymnax"),
        ("jax-pong", "jax-pong"),
        ("jax-pong-pixels", "jax-pong-pixels"),
    ],
)
def test_family(name, family):
    envs.check_name(name)
    assert envs.family(name) == family


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gymnax:CartPol-v1", "gymnax:CartPole-v1"),
        ("CartPole-v1", "gymnax:CartPole-v1"),
        ("Pnog-v5", "Pong-v5"),
        ("pong-v5", "Pong-v5"),
        ("jax-pon", "jax-pong"),
        ("jax-pong-pixel", "jax-pong-pixels"),
    ],
)
def test_unknown_names_suggest_the_nearest(typed, meant):
    with pytest.raises(InvalidInput, match=meant):
        envs.check_name(typed)


@pytest.mark.parametrize("name", ["", "CartPole", "Ant-v5", "gymnax:", "???"])
def test_other_unknown_names_are_refused(name):
    with pytest.raises(InvalidInput, match="jax-pong"):
        envs.make(name, num_envs=1)


def test_without_envpool_atari_names_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.setitem(sys.modules, "envpool.registration", None)
    for name in ("Pong-v5", "Pnog-v5"):
        with pytest.raises(InvalidInput, match="pip install envpool"):
            envs.check_name(name)
    assert envs.make("jax-pong", num_envs=2).num_envs == 2
    with pytest.raises(InvalidInput, match="jax-pong"):
        envs.check_name("jax-pon")


def test_environments_registered_at_run_time_are_known(monkeypatch):
    monkeypatch.setattr(gymnax.registration, "_registry", dict(gymnax.registration._registry))
    monkeypatch.setattr(gymnax.registration, "registered_envs", gymnax.registered_envs)
    gymnax.register("Own-v0", JaxPong)
    try:
        assert envs.make("gymnax:Own-v0", num_envs=2).spec.observation_shape == (8,)
    finally:
        gymnax.registered_envs.remove("Own-v0")


def test_data_that_cannot_be_read_is_said_so(monkeypatch):
    def unreachable(name):
        raise OSError("no network")

    monkeypatch.setattr(gymnax, "make", unreachable)
    with pytest.raises(InvalidInput, match="no network"):
        envs.make("gymnax:MNISTBandit-bsuite", num_envs=1)
