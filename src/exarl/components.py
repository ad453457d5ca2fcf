"""Names become things: configurations, environments and agents from ids and parameters."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from exarl import registry
from exarl.agents.base import ExaAgent, NoParameters
from exarl.config import (
    FAMILIES,
    Configuration,
    Schema,
    Source,
    load,
    parse_flags,
    resolve,
    schema_of,
    stored_source,
)
from exarl.envs import describe_env, make_env
from exarl.envs.spaces import SpaceAdapter, adapt
from exarl.errors import ConfigError
from exarl.runs.directory import RunDirectory, read_json
from exarl.types import EnvSpec
from exarl.workflows.base import ExaWorkflow

STOPS = ("total_steps", "n_episodes", "wall_time", "target_reward")
MAY_CHANGE = (*STOPS, "log_level", "profile", "checkpoint_interval", "keep_checkpoints")


def lookup(family: str, id: str) -> tuple[Schema, bool]:
    """The parameters of a registered component."""
    if family == "env":
        return describe_env(id)
    registries = {
        "agent": registry.agents,
        "workflow": registry.workflows,
        "model": registry.networks,
    }
    component = registries[family].load(id)
    return schema_of(getattr(component, "Config", NoParameters)), False


def configure(
    config: str | os.PathLike[str] | None = None,
    flags: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Configuration:
    """Resolve all layers, the words of a command line and Python arguments, later ones winning."""
    explicit = [
        Source(parse_flags(flags), "command line", text=True),
        Source(overrides or {}, "argument"),
    ]
    return load(lookup, explicit, config=Path(config).expanduser() if config else None)


def configure_again(run: RunDirectory, flags: Sequence[str] = ()) -> Configuration:
    """The configuration of a stored run, with a few words of a command line on top."""
    stored = stored_source(read_json(run.config), str(run.config))
    return resolve(lookup, [stored, Source(parse_flags(flags), "command line", text=True)])


def check_same_run(run: RunDirectory, configuration: Configuration) -> None:
    """ConfigError when a stored run is not the one asked for; only its ending may differ."""
    stored = read_json(run.config)
    asked = json.loads(json.dumps(configuration.to_json()))
    for family in FAMILIES:
        for key, value in asked[family].items():
            if stored[family].get(key) != value and key not in MAY_CHANGE:
                raise ConfigError(
                    f"{run.path} holds a run with {key}={stored[family].get(key)!r}, not {value!r};"
                    " choose another run_dir"
                )


def build_episode(
    configuration: Configuration, env_id: int, comm: Any = None, **options: Any
) -> tuple[Any, SpaceAdapter, int | None]:
    """One environment, its adapter for the chosen agent, and the limit on its episodes."""
    learner = configuration.learner
    agent_class = registry.agents.load(learner.agent)
    env, limit = make_env(learner.env, configuration.values["env"], comm=comm, **options)
    limit = learner.n_steps or limit
    adapter = adapt(
        learner.env,
        env.observation_space,
        env.action_space,
        action_kind=agent_class.action_kind,
        nactions=configuration.values["agent"].get("nactions", 5),
        max_episode_steps=limit,
    )
    return env, adapter, limit


def build_agent(configuration: Configuration, spec: EnvSpec) -> ExaAgent:
    """The chosen agent with the chosen network, not yet a learner."""
    learner = configuration.learner
    agent_class = registry.agents.load(learner.agent)
    network_class = registry.networks.load(learner.model_type)
    network_config = configuration.build("model", getattr(network_class, "Config", NoParameters))
    network = partial(network_class, network_config, spec.observation)
    agent: ExaAgent = agent_class(
        spec, configuration.build("agent", agent_class.Config), network, learner.seed
    )
    n_step = getattr(agent.config, "n_step", 1)
    if n_step > learner.block_steps:
        raise ConfigError(f"n_step={n_step} needs block_steps >= n_step, not {learner.block_steps}")
    return agent


def check_learners(workflow: ExaWorkflow, configuration: Configuration) -> None:
    """ConfigError when several learners are asked for and workflow or agent cannot have them."""
    learner = configuration.learner
    if learner.learner_procs == 1:
        return
    if not workflow.many_learners:
        raise ConfigError(f"workflow '{learner.workflow}' has one learner: learner_procs must be 1")
    if not registry.agents.load(learner.agent).learns_in_team:
        raise ConfigError(
            f"agent '{learner.agent}' learns alone (learns_in_team): learner_procs must be 1"
        )


def build_workflow(configuration: Configuration) -> ExaWorkflow:
    """The chosen workflow."""
    workflow_class = registry.workflows.load(configuration.learner.workflow)
    config = configuration.build("workflow", getattr(workflow_class, "Config", NoParameters))
    workflow: ExaWorkflow = workflow_class(config)
    return workflow
