"""Agents: one file an algorithm, acting in NumPy and learning in JAX."""

from exarl.agents.base import ExaAgent
from exarl.registry import agents as _registry

register = _registry.register

__all__ = ["ExaAgent", "register"]
