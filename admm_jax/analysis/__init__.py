"""Arithmetic on what runs send and score: ledger, links, statistics, figures."""

from admm_jax.analysis.ledger import Ledger
from admm_jax.analysis.statistics import bootstrap_ci95

__all__ = ["Ledger", "bootstrap_ci95"]
