"""Workflows: thin compositions of the one rollout and the one learning loop."""

from exarl.registry import workflows as _registry
from exarl.workflows.base import ExaWorkflow

register = _registry.register

__all__ = ["ExaWorkflow", "register"]
