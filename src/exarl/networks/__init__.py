"""Networks: one forward pass over an array namespace ``xp`` acts in NumPy and learns in JAX."""

from __future__ import annotations

from exarl.networks.params import ParamLayout
from exarl.registry import networks as _registry

register = _registry.register

__all__ = ["ParamLayout", "register"]
