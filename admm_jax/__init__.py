"""Consensus ADMM for distributed reinforcement learning, one exchange per compiled round."""

__version__ = "0.1.0"
