"""Names become things: configurations, environments and agents from ids and parameters."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from exarl import registry
from exarl.acting.evaluation import Evaluator
from exarl.agents.base import ExaAgent, NoParameters
from exarl.agents.offpolicy import LEARNS_ALONE
from exarl.comm.layout import Layout, plan_layout
from exarl.comm.wait import wait_for
from exarl.config import (
    FAMILIES,
    STOPS,
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
from exarl.envs.base import described
from exarl.envs.context import make_context
from exarl.envs.episode import Episode
from exarl.envs.guard import Guard, close_quietly
from exarl.envs.isolation import Limits, isolate
from exarl.envs.registration import asks_for
from exarl.envs.spaces import SpaceAdapter, adapt
from exarl.errors import ConfigError
from exarl.learning.exploration import EVALUATION
from exarl.records.directory import (
    RunDirectory,
    expand,
    made_folder,
    new_run_directory,
    read_json,
    write_json,
    writing,
)
from exarl.records.manifest import make_manifest
from exarl.records.sinks import check_sinks
from exarl.records.state import FAILED, ended_as
from exarl.records.trace import merge
from exarl.records.trust import check_run, sealed_again, sealed_run
from exarl.training.stops import first_met
from exarl.types import Arrays, EnvSpec
from exarl.workflows.base import ExaWorkflow

WHERE = ("run_dir", "output_dir")
LOGGED = ("log_level", "log_to", "log_online", "log_project")
KEPT = ("checkpoint_interval", "keep_checkpoints", "on_divergence")
OBSERVED = (*LOGGED, *KEPT, "profile", "watchdog")
GUARDED = ("env_failure", "env_isolation", "step_timeout", "reset_timeout", "max_env_failures")
MAY_CHANGE = (*STOPS, *OBSERVED, *GUARDED, *WHERE, "learner_procs")
UNSEALED = tuple(key for key in MAY_CHANGE if key not in ("log_to", "log_online", "log_project"))
"""What may change in a run's ``config.json`` without it being another's: it runs nothing."""


@dataclass(frozen=True)
class Home:
    """Where an environment of a run lives; ``name`` is that of its folder and of its output."""

    run: RunDirectory
    index: int
    rank: int
    name: str = ""

    @property
    def work_dir(self) -> Path:
        return self.run.envs / (self.name or f"{self.index:04d}")

    @property
    def output(self) -> Path:
        return self.run.logs / f"env_{self.work_dir.name}.out"


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
    """Resolve all layers, Python arguments and the words of a command line, later ones winning."""
    explicit = [
        Source(overrides or {}, "argument"),
        Source(parse_flags(flags), "command line", text=True),
    ]
    return load(lookup, explicit, config=expand(config) if config else None)


def configure_again(
    run: RunDirectory, flags: Sequence[str] = (), trust: bool = False
) -> Configuration:
    """The configuration of a stored run, with a few words of a command line on top.

    ConfigError, before anything is imported, where the run names what is outside of EXARL and this
    user has neither written it nor now says ``trust``.
    """
    data = read_json(run.config)
    stored = stored_source(data, str(run.config))
    if not trust:
        check_run(run.path, data, UNSEALED)
    given = Source(parse_flags(flags), "command line", text=True)
    for key in given.values:
        if key.removeprefix("learner.") in WHERE:
            raise ConfigError(
                f"{key} cannot be given ({given.origin}): the run stays in {run.path}"
            )
    return resolve(lookup, [stored, given])


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


def finished_by(run: RunDirectory, configuration: Configuration) -> str | None:
    """The stop criterion that a run at its end has met already; None when there is more to do."""
    try:
        summary = read_json(run.summary)
        if ended_as(summary["reason"]) == FAILED:
            return None  # perhaps on its last metres
        reached = {
            "total_steps": summary["timesteps_total"],
            "n_episodes": summary["episodes_total"],
            "wall_time": summary["wall_s"],
        }
        if summary["episodes_total"] >= configuration.learner.reward_window:
            reached["target_reward"] = summary["last_reward_mean"]
        return first_met(configuration.learner, reached)
    except (ConfigError, KeyError, TypeError):
        return None  # it has not ended, or its summary cannot be read


def remember_changes(run: RunDirectory, configuration: Configuration) -> None:
    """Store in ``config.json`` what a continued run changed, so that the next part knows it too, and
    that it is this user's run from here on."""
    stored, now = read_json(run.config), json.loads(json.dumps(configuration.to_json()))
    changed = {
        key: now["learner"][key]
        for key in MAY_CHANGE
        if key not in WHERE and stored["learner"].get(key) != now["learner"][key]
    }
    if changed:
        stored["learner"] |= changed
        origins = {f"learner.{key}": configuration.origins[f"learner.{key}"] for key in changed}
        known = stored.get("origins")
        stored["origins"] = known | origins if isinstance(known, dict) else origins
    ours = sealed_again(run.path, stored, now, UNSEALED)
    if changed or ours != stored:
        with writing(run.path):
            write_json(run.config, ours)


def build_env(
    configuration: Configuration, comm: Any = None, home: Home | None = None, **options: Any
) -> tuple[Any, int | None]:
    """One environment, in a process of its own if so configured, and the limit its episodes have.

    Without a ``home`` in a run its folder is a temporary one.
    """
    learner, values = configuration.learner, configuration.values["env"]
    isolated = learner.env_isolation == "process"
    with contextlib.ExitStack() as undo:
        if home is not None and isolated:
            undo.enter_context(made_folder(home.output.parent, home.output))
        if home is not None and asks_for(learner.env, "context"):
            undo.enter_context(made_folder(home.work_dir))
            options["context"] = make_context(home.index, home.rank, learner.seed, home.work_dir)
        if isolated:
            limits = Limits(learner.step_timeout, learner.reset_timeout)
            if home is not None:
                options |= {"output": home.output, "who": f"environment {home.index}"}
            return isolate(learner.env, values, limits=limits, **options)
        return make_env(learner.env, values, comm=comm, **options)


def build_episode(
    configuration: Configuration, comm: Any = None, home: Home | None = None, **options: Any
) -> tuple[Any, SpaceAdapter, int | None]:
    """One environment, its adapter for the chosen agent, and the limit on its episodes."""
    learner = configuration.learner
    agent_class = registry.agents.load(learner.agent)
    env, limit = build_env(configuration, comm, home, **options)
    limit = learner.n_steps or limit
    fit = partial(
        adapt,
        learner.env,
        env.observation_space,
        env.action_space,
        nactions=configuration.values["agent"].get("nactions", 5),
        max_episode_steps=limit,
        frames=learner.frame_stack,
    )
    try:
        adapter = fit(action_kind=agent_class.action_kind)
    except ConfigError as error:
        close_quietly(env)
        raise ConfigError(f"{error}{agents_that_fit(fit)}") from error
    spec = dataclasses.replace(adapter.spec, about=described(env))
    return env, dataclasses.replace(adapter, spec=spec), limit


def agents_that_fit(fit: Callable[..., SpaceAdapter]) -> str:
    """The agents for which ``fit(action_kind=...)`` succeeds, for the end of a message; or nothing."""
    ids = []
    for id in registry.agents.ids():
        with contextlib.suppress(ConfigError):
            fit(action_kind=registry.agents.load(id).action_kind)
            ids.append(id)
    return f"; agents that fit: {', '.join(ids)}" if ids else ""


def build_guard(
    configuration: Configuration, home: Home | None = None, **options: Any
) -> Guard | None:
    """Who makes this environment anew when it fails, if anybody is to."""
    learner = configuration.learner
    if learner.env_failure == "raise":
        return None
    return Guard(
        lambda: build_env(configuration, home=home, **options)[0], learner.max_env_failures
    )


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
    return agent


def build_evaluator(configuration: Configuration, home: Home) -> Evaluator | None:
    """Who plays the policy during training, if anybody is to."""
    learner = configuration.learner
    if learner.eval_interval is None:
        return None
    env, adapter, limit = build_episode(configuration, home=home)
    guard = build_guard(configuration, home)
    # Not environment 0, whose episodes 'exarl evaluate' plays: the best is chosen by these.
    episode = Episode(env, adapter, limit, learner.seed, 1, kind=EVALUATION, guard=guard)
    agent = build_agent(configuration, adapter.spec)
    return Evaluator(agent, episode, learner.eval_interval, learner.eval_episodes)


def generate(agent: ExaAgent, weights: np.ndarray, rows: Arrays) -> Arrays:
    """A rank's share of preparing a block."""
    agent.set_weights(weights)
    return agent.generate(rows)


def plan(configuration: Configuration, ranks: int, serial: bool = False) -> Layout:
    """How ``ranks`` are spent; a workflow that starts its own processes counts those."""
    learner, workflow = configuration.learner, build_workflow(configuration)
    if workflow.hosted and not serial:
        if learner.process_per_env > 1:
            raise ConfigError(
                f"workflow '{learner.workflow}' starts no MPI ranks: process_per_env must be 1"
            )
        actors = getattr(workflow.config, "n_actors", None) or 1
        return Layout(learner.learner_procs + actors, learner.learner_procs, 1)
    return plan_layout(ranks, learner.learner_procs, learner.process_per_env)


def check_configuration(configuration: Configuration, ranks: int = 1) -> None:
    """ConfigError for what can be known to fail before anything is built or started."""
    learner = configuration.learner
    n_step = configuration.values["agent"].get("n_step", 1)
    if n_step > learner.block_steps:
        raise ConfigError(f"n_step={n_step} needs block_steps >= n_step, not {learner.block_steps}")
    check_sinks(learner.log_to, learner.log_online)
    workflow = build_workflow(configuration)
    if workflow.one_rank and ranks > 1:
        raise ConfigError(f"workflow '{learner.workflow}' runs on one rank, not on {ranks}")
    check_learners(workflow, configuration)
    check_agent(workflow, configuration)


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
    if configuration.values["agent"].get("replay_device") == "device":
        raise ConfigError(LEARNS_ALONE)


def check_agent(workflow: ExaWorkflow, configuration: Configuration) -> None:
    """ConfigError when the agent cannot learn correctly in this workflow."""
    learner, agent = configuration.learner, configuration.values["agent"]
    agent_class = registry.agents.load(learner.agent)
    lags = workflow.lags and getattr(workflow.config, "max_policy_lag", None) != 0
    if lags and agent_class.needs_vtrace and not agent.get("vtrace", True):
        raise ConfigError(
            f"agent '{learner.agent}' learns only from its present policy; in workflow"
            f" '{learner.workflow}' actors lag behind: leave vtrace on or set max_policy_lag 0"
        )


def script_flags() -> list[str]:
    """The command line of the script being run; nothing in an interactive session."""
    interactive = hasattr(sys, "ps1") or "ipykernel" in sys.modules
    return [] if interactive else sys.argv[1:]


def place_run(configuration: Configuration) -> RunDirectory:
    """Where a new run of this configuration will be; nothing is written yet."""
    learner = configuration.learner
    if learner.run_dir:
        return RunDirectory(expand(learner.run_dir))
    return new_run_directory(learner.output_dir, learner.agent, learner.env, learner.workflow)


def create_run(
    configuration: Configuration,
    layout: Mapping[str, Any],
    mpi: str | None,
    spec: EnvSpec | None = None,
    run: RunDirectory | None = None,
) -> RunDirectory:
    """A new run directory for this configuration, with its manifest in it; ``run`` says where.

    ``spec`` is what the environment looks like and says of itself.
    """
    learner, run = configuration.learner, run or place_run(configuration)
    layout = {**layout, "envs_per_actor": learner.envs_per_actor}
    about = spec.about if spec is not None else {}
    facts: dict[str, Any] = {"mpi": mpi, "environment": {"id": learner.env, **about}}
    if spec is not None:
        facts["spec"] = spec.to_json()
    config = sealed_run(run.path, configuration.to_json(), UNSEALED)
    run.create(config, make_manifest(layout, learner.seed, **facts))
    return run


def join_traces(run: RunDirectory, ranks: int | None) -> None:
    """One trace of those that the ranks have written, or are about to write; None: that are there."""
    if ranks is None:
        parts = sorted(run.logs.glob("trace_*.json"))
    else:
        parts = [run.rank_file("trace", rank, "json") for rank in range(ranks)]
    wait_for(lambda: True if all(part.exists() for part in parts) else None)
    merge(parts, run.trace)
    for part in parts:
        part.unlink()


def build_workflow(configuration: Configuration) -> ExaWorkflow:
    """The chosen workflow."""
    workflow_class = registry.workflows.load(configuration.learner.workflow)
    config = configuration.build("workflow", getattr(workflow_class, "Config", NoParameters))
    workflow: ExaWorkflow = workflow_class(config)
    return workflow
