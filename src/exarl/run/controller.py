"""The best controller of a search as a small file."""

from __future__ import annotations

from pathlib import Path

from exarl.agents.search import SearchAgent
from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory, write_json, writing
from exarl.run.policy import load


def write_controller(run: RunDirectory) -> Path:
    """Write ``controller.json`` of a run of Search-v0: the controller with the best evaluation during
    the run, or else the last one. Returns its path."""
    policy = load(run.path, best=run.best.is_dir())
    if not isinstance(policy.agent, SearchAgent):
        raise ConfigError(f"{run.path} is no run of Search-v0")
    with writing(run.path):
        write_json(run.controller, policy.agent.controller())
    return run.controller
