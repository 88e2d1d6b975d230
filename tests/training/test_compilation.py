import jax
import pytest

from admm_jax.training.compilation import keep_compiled_programs
from tests.training.builders import cartpole


@pytest.fixture(autouse=True)
def restored():
    before = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [({"JAX_COMPILATION_CACHE_DIR": "own"}, "own"), ({"XDG_CACHE_HOME": "cache"}, "cache/admm_jax")],
)
def test_where_programs_are_kept(tmp_path, monkeypatch, variables, folder):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert keep_compiled_programs(cartpole())
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / folder)


def test_programs_that_step_emulators_are_not_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    assert not keep_compiled_programs(cartpole(env="Pong-v5", network="article", hidden=(8,)))
    assert jax.config.jax_compilation_cache_dir == before
