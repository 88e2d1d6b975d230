"""Consensus ADMM for distributed reinforcement learning, one exchange per compiled round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from admm_jax.training.policy import Policy, load_policy

__version__ = "0.1.0"
__all__ = ["Policy", "load_policy"]


def __getattr__(name: str) -> Any:
    # Imported when asked for: whoever wants the consensus rules alone does not wait for environments.
    if name in __all__:
        from admm_jax.training import policy

        return getattr(policy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
