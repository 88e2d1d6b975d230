"""Checkpoints come back bit for bit, and a damaged one does not go unnoticed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.errors import InvalidInput
from admm_jax.training.checkpoints import Checkpoints, saved_part
from admm_jax.training.state import sha256
from tests.training.builders import build, cartpole


@pytest.fixture(scope="module")
def fresh():
    return build(cartpole(workers=2)).state


def marked(state, value):
    """The same state with another z, and environments that differ from fresh ones."""
    shared = state.consensus.shared
    shared = shared._replace(z=jnp.full_like(shared.z, value), round=jnp.asarray(int(value), jnp.int32))
    return state._replace(consensus=state.consensus._replace(shared=shared), observation=state.observation + value)


def test_what_was_saved_comes_back(tmp_path, fresh):
    checkpoints = Checkpoints(tmp_path / "c", keep=2, with_environments=True)
    state = marked(fresh, 3.0)
    checkpoints.save(3, state, {"totals": {"rounds": 3}})
    restored = checkpoints.restore(fresh, pytest.fail)
    assert sha256(restored.state) == sha256(state)
    assert restored.manifest["totals"] == {"rounds": 3}
    assert restored.manifest["state_sha256"] == sha256(saved_part(state, True))


def test_environments_that_cannot_be_saved_start_anew(tmp_path, fresh):
    checkpoints = Checkpoints(tmp_path / "c", keep=2, with_environments=False)
    checkpoints.save(3, marked(fresh, 3.0), {})
    restored = checkpoints.restore(fresh, pytest.fail).state
    np.testing.assert_array_equal(restored.observation, fresh.observation)
    assert float(restored.consensus.shared.z[0]) == 3


def test_only_the_newest_are_kept(tmp_path, fresh):
    checkpoints = Checkpoints(tmp_path / "c", keep=2, with_environments=True)
    for number in (1, 2, 4):
        checkpoints.save(number, marked(fresh, float(number)), {})
    assert checkpoints.rounds() == [2, 4]
    assert int(checkpoints.restore(fresh, pytest.fail).state.consensus.shared.round) == 4


def damage_nothing_left(folder):
    (folder / "manifest.json").unlink()


def damage_manifest(folder):
    (folder / "manifest.json").write_text("{")


def damage_content(folder):
    data = max((path for path in (folder / "state").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(data.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 20] = bytes(20)
    data.write_bytes(content)


def damage_length(folder):
    for path in (folder / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:10])


@pytest.mark.parametrize("damage", [damage_nothing_left, damage_manifest, damage_content, damage_length])
def test_a_damaged_checkpoint_is_passed_over_loudly(tmp_path, fresh, damage):
    checkpoints = Checkpoints(tmp_path / "c", keep=3, with_environments=True)
    for number in (5, 6):
        checkpoints.save(number, marked(fresh, float(number)), {})
    damage(tmp_path / "c" / "00000006")
    warnings = []
    restored = checkpoints.restore(fresh, warnings.append)
    assert int(restored.state.consensus.shared.round) == 5
    (warning,) = warnings
    assert "00000006" in warning
    assert "damaged" in warning
    assert (tmp_path / "c" / "00000006.damaged").exists()
    assert checkpoints.rounds() == [5]


def test_nothing_intact(tmp_path, fresh):
    checkpoints = Checkpoints(tmp_path / "c", keep=2, with_environments=True)
    with pytest.raises(InvalidInput, match="has a checkpoint"):
        checkpoints.restore(fresh, pytest.fail)
    checkpoints.save(1, fresh, {})
    damage_length(tmp_path / "c" / "00000001")
    with pytest.raises(InvalidInput, match="intact"):
        checkpoints.restore(fresh, lambda text: None)
    assert (tmp_path / "c" / "00000001").exists()


def test_fingerprints_see_a_single_bit(fresh):
    other = fresh._replace(observation=fresh.observation.at[0, 0, 0].add(1e-7))
    assert sha256(fresh) == sha256(jax.tree.map(jnp.copy, fresh))
    assert sha256(fresh) != sha256(other)
