"""A run that begins with the policy of another one, and perhaps with more of it.

What it begins with is copied into its directory when that is created. So all learners begin with the
same, and the run goes on without the other one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from exarl.agents.base import ExaAgent
from exarl.agents.start import REPLAY
from exarl.config import Configuration, LearnerConfig
from exarl.errors import CheckpointError, ConfigError
from exarl.records.checkpoint import (
    Checkpoint,
    check_made_for,
    file_sum,
    find_newest,
    load_checkpoint,
    load_newest,
    made_for,
    save_checkpoint,
)
from exarl.records.directory import RunDirectory, absolute, open_run, read_json
from exarl.run.build import build_agent
from exarl.training.checkpointer import part_for
from exarl.types import EnvSpec

_AGENT = "agent"
_REWARDS = ("gamma", "n_step")
"""Parameters of the agent that the rewards in a replay were summed up with."""


@dataclass(frozen=True)
class Beginning:
    """What a run begins with of another one, and what its manifest says of that."""

    checkpoint: Checkpoint
    facts: dict[str, Any]

    def keep(self, run: RunDirectory) -> None:
        """Write it into the directory of the new run."""
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            save_checkpoint(run.start, int(self.facts["steps"]), self.checkpoint, keep=1)
        except OSError as error:
            raise ConfigError(f"cannot write to {run.path}: {error}") from error


def find_beginning(configuration: Configuration, spec: EnvSpec) -> Beginning | None:
    """What the run is to begin with, if there is another run in its ``start_from``.

    Only numbers of that run are read, and nothing it names is imported. ConfigError, before anything
    is written, if it does not fit: another agent, network, spaces or bounds of actions.
    """
    config = configuration.learner
    if config.start_from is None:
        return None
    source = open_run(config.start_from, fixed=True)
    try:
        path = find_newest(source.best if config.start_best else source.checkpoints)
        if path is None:
            what = "best policy (eval_interval)" if config.start_best else "usable checkpoint"
            raise ConfigError(f"start_from: {source.path} has no {what}")
        checkpoint = load_checkpoint(path)
        _check(checkpoint, source, configuration, spec)
        kept = _parts(checkpoint, config)
        learner = build_agent(configuration, spec)
        learner.set_learner()
        _start(learner, kept, config, 0)
        steps = int(checkpoint.numbers["counters"]["steps"])
    except (CheckpointError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"start_from: {source.path} does not fit this run: {error}") from error
    facts = {
        "run": str(absolute(source.path)),
        "checkpoint": str(path.relative_to(source.path)),
        "steps": steps,
        "sha256": file_sum(path, _AGENT),
        "parts": list(config.start_parts),
    }
    return Beginning(kept, facts)


def begin_with(agent: ExaAgent, config: LearnerConfig, run: RunDirectory, index: int) -> None:
    """Let learner ``index`` begin with what the run keeps of another one."""
    found = load_newest(run.start)
    if found is None:
        raise CheckpointError(f"{run.start} is missing or damaged: begin the run again")
    _start(agent, found, config, index)


def _start(agent: ExaAgent, checkpoint: Checkpoint, config: LearnerConfig, index: int) -> None:
    agent.start(part_for(checkpoint, index).arrays[_AGENT], config.start_parts)


def _check(
    checkpoint: Checkpoint, source: RunDirectory, configuration: Configuration, spec: EnvSpec
) -> None:
    """ValueError where the run's checkpoint is of another kind than this run; its environment may be
    another one."""
    wanted = made_for(configuration.learner, configuration.values["model"], spec)
    wanted.pop("env")
    check_made_for(checkpoint, wanted)
    there = read_json(source.manifest).get("spec", {})
    for name in ("action_low", "action_high"):
        own = list(getattr(spec, name))
        if (other := there.get(name, own)) != own:
            raise ValueError(f"{name} is {other} there, {own} in this run")
    if REPLAY not in configuration.learner.start_parts:
        return
    stored, own_values = read_json(source.config)["agent"], configuration.values["agent"]
    for name in _REWARDS:
        if stored.get(name) != own_values.get(name):
            raise ValueError(
                f"{name} is {stored.get(name)} there, {own_values.get(name)} in this run, and a replay"
                " holds rewards that are summed with it"
            )


def _parts(checkpoint: Checkpoint, config: LearnerConfig) -> Checkpoint:
    """The agents of a checkpoint, with their replay if the run begins with it."""
    replay = REPLAY in config.start_parts
    arrays = {
        group: {n: a for n, a in named.items() if replay or not n.startswith("replay/")}
        for group, named in checkpoint.arrays.items()
        if group.startswith(_AGENT)
    }
    names = ("made_for", "counters", "agents")
    numbers = {name: checkpoint.numbers[name] for name in names if name in checkpoint.numbers}
    return Checkpoint(arrays, {**numbers, "agent": checkpoint.numbers.get("agent", {})})
