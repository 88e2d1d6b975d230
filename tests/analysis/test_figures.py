"""Pictures hold what they were given."""

from matplotlib import pyplot as plt

from admm_jax.analysis import figures
from admm_jax.analysis.figures import RULE_COLOURS, Series, curves, profile
from admm_jax.analysis.statistics import Estimate
from admm_jax.training.rules import RULES


def test_every_rule_has_a_colour_of_its_own():
    assert set(RULE_COLOURS) == set(RULES)
    assert len(set(RULE_COLOURS.values())) == len(RULES)


def kept(monkeypatch):
    """Figures stay open, to be looked at."""
    monkeypatch.setattr(figures.plt, "close", lambda figure: None)


def test_curves_and_their_intervals(tmp_path, monkeypatch):
    kept(monkeypatch)
    estimates = [Estimate(1, 0, 2), Estimate(3, 2.5, 4)]
    series = [Series("admm, ppo", "admm", [10, 100], estimates), Series("admm, a2c", "admm", [20, 200], estimates)]
    curves(series, "MB", "score", "title", tmp_path / "curves.png", log=True)
    axes = plt.gcf().axes[0]
    first, second = axes.lines
    assert list(first.get_xdata()) == [10, 100]
    assert list(first.get_ydata()) == [1, 3]
    assert first.get_color() == second.get_color() == RULE_COLOURS["admm"]
    assert first.get_linestyle() != second.get_linestyle()
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["admm, ppo", "admm, a2c"]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (0, 4)
    assert (tmp_path / "curves.png").exists()
    plt.clf()


def test_profiles_fall_from_one_to_zero(tmp_path, monkeypatch):
    kept(monkeypatch)
    profile({"admm, ppo": [1, 2, 3, 4], "fedavg, ppo": [0, 0, 0, 8]}, "title", tmp_path / "profile.png")
    for line in plt.gcf().axes[0].lines:
        shares = line.get_ydata()
        assert (shares[0], shares[-1]) == (1, 0)
        assert (shares[1:] <= shares[:-1]).all()
    plt.clf()
