"""Algorithms side by side: suites of runs, their results as rows, and a report."""

from admm_jax.comparison.results import Results
from admm_jax.comparison.suites import SUITES, Cell, Suite

__all__ = ["SUITES", "Cell", "Results", "Suite"]
