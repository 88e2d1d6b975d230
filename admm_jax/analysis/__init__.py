"""Arithmetic on runs: traffic and statistics."""

from admm_jax.analysis.statistics import bootstrap_ci95
from admm_jax.analysis.traffic import Uplink

__all__ = ["Uplink", "bootstrap_ci95"]
