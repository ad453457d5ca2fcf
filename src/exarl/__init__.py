"""EXARL: reinforcement learning whose environment is a simulation or an experiment.

Nothing heavy is imported here: a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exarl.agents.base import ExaAgent
    from exarl.envs.base import ExaEnv
    from exarl.envs.external.loop_client import ExaClient
    from exarl.errors import ConfigError, ExarlError
    from exarl.run.evaluation import evaluate
    from exarl.run.experiment import ExaLearner, resume, train
    from exarl.run.names import make, register
    from exarl.run.play import RunResult
    from exarl.run.policy import TrainedPolicy, load
    from exarl.version import __version__ as __version__
    from exarl.workflows.base import ExaWorkflow

_PUBLIC = {
    "ExaAgent": "exarl.agents.base",
    "ExaClient": "exarl.envs.external.loop_client",
    "ExaEnv": "exarl.envs.base",
    "ExaLearner": "exarl.run.experiment",
    "ExaWorkflow": "exarl.workflows.base",
    "ExarlError": "exarl.errors",
    "ConfigError": "exarl.errors",
    "RunResult": "exarl.run.play",
    "TrainedPolicy": "exarl.run.policy",
    "evaluate": "exarl.run.evaluation",
    "load": "exarl.run.policy",
    "make": "exarl.run.names",
    "register": "exarl.run.names",
    "resume": "exarl.run.experiment",
    "train": "exarl.run.experiment",
    "__version__": "exarl.version",
}
_ROOMS = ("agents", "envs", "networks", "workflows")

__all__ = [
    "ConfigError",
    "ExaAgent",
    "ExaClient",
    "ExaEnv",
    "ExaLearner",
    "ExaWorkflow",
    "ExarlError",
    "RunResult",
    "TrainedPolicy",
    "evaluate",
    "load",
    "make",
    "register",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"exarl.{name}")
    raise AttributeError(f"module 'exarl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__version__"])
