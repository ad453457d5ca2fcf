"""Build the environments, agents and workflow that a configuration names."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exarl import registry
from exarl.acting.evaluation import Evaluator
from exarl.acting.joint_episode import JointEpisode
from exarl.agents.base import ExaAgent, NoParameters
from exarl.agents.constraints import Constraints
from exarl.agents.policies import Policies
from exarl.config import Configuration, LearnerConfig
from exarl.config.grammar import read_policies
from exarl.envs import make_env
from exarl.envs.base import Env, Space, described
from exarl.envs.common_form import together
from exarl.envs.context import make_context
from exarl.envs.episode import Episode
from exarl.envs.external.env import Timeouts
from exarl.envs.guard import Guard, close_quietly
from exarl.envs.isolation import isolate
from exarl.envs.joint import joint_of, members_of, policies_in
from exarl.envs.member import make_episode
from exarl.envs.registration import asks_for
from exarl.envs.residual import Residual
from exarl.envs.space_json import space_to_json
from exarl.envs.spaces import SpaceAdapter, adapt
from exarl.envs.structured import unflattened
from exarl.errors import ConfigError
from exarl.learning.exploration import EVALUATION
from exarl.networks.parted import network_of
from exarl.records.directory import RunDirectory, made_folder
from exarl.run.residual import with_controller
from exarl.types import EnvSpec
from exarl.workflows.base import ExaWorkflow

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


@dataclass(frozen=True)
class Home:
    """The place of an environment in a run; ``name`` is that of its folder and of its output."""

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


def build_env(
    configuration: Configuration,
    comm: Intracomm | None = None,
    home: Home | None = None,
    **options: Any,
) -> tuple[Any, int | None]:
    """One environment, in a process of its own if so configured, and the limit of its episodes.

    Without a ``home`` in a run its folder is a temporary one.
    """
    learner, values = configuration.learner, configuration.values["env"]
    isolated = learner.env_isolation == "process"
    options["drop"] = [
        name.strip() for name in learner.drop_observations.split(",") if name.strip()
    ]
    with contextlib.ExitStack() as undo:
        if home is not None and isolated:
            undo.enter_context(made_folder(home.output.parent, home.output))
        if home is not None and asks_for(learner.env, "context"):
            undo.enter_context(made_folder(home.work_dir))
            options["context"] = make_context(home.index, home.rank, learner.seed, home.work_dir)
        options |= {"weights": learner.weights, "preferences": learner.preferences}
        if isolated:
            timeouts = Timeouts(learner.step_timeout, learner.reset_timeout)
            if home is not None:
                options |= {"output": home.output, "who": f"environment {home.index}"}
            options["info"] = bool(learner.log_info or costs_of(configuration))
            made: tuple[Env, int | None] = isolate(
                learner.env, values, timeouts=timeouts, **options
            )
        else:
            options["common_reward"] = learner.common_reward
            options["policies"] = read_policies(learner.policies)
            made = make_env(learner.env, values, comm=comm, **options)
            check_agents(learner, made[0])
        return with_controller(learner, made[0]), made[1]


def check_agents(learner: LearnerConfig, env: Env) -> None:
    """ConfigError where ``env`` has several agents and something in the run needs one, or the other
    way round; closes it."""
    several = joint_of(env) is not None
    refused = {
        "process_per_env": learner.process_per_env > 1,
        "env_failure restart": learner.env_failure == "restart",
    }
    for_several = {
        "policies": bool(learner.policies),
        "agents_change": learner.agents_change,
        "common_reward": learner.common_reward,
    }
    for key, given in (refused if several else for_several).items():
        if given:
            close_quietly(env)
            has = "which has several agents" if several else "which is not one of several agents"
            raise ConfigError(f"{key} cannot be used with '{learner.env}', {has}")


def build_episode(
    configuration: Configuration,
    comm: Intracomm | None = None,
    home: Home | None = None,
    **options: Any,
) -> tuple[Any, SpaceAdapter, int | None]:
    """One environment, its adapter for the chosen agent, and the limit on its episodes.

    The adapter of a simulation of several agents is that of each of its members.
    """
    env, limit = build_env(configuration, comm, home, **options)
    limit = configuration.learner.n_steps or limit
    try:
        spaces = [(one.observation_space, one.action_space) for one in members_of(env)]
        adapter = adapter_of(configuration, spaces, policies_in(env), limit)
    except ConfigError:
        close_quietly(env)
        raise
    stored = dict(adapter.spec.spaces)
    if stored and isinstance(env, Residual):
        base = written(*env.base_spaces)
        stored |= {f"base_{name}": space for name, space in base.items()}
    spec = dataclasses.replace(adapter.spec, about=described(env), spaces=stored)
    return env, dataclasses.replace(adapter, spec=spec), limit


def adapter_of(
    configuration: Configuration,
    spaces: Sequence[tuple[Space, Space]],
    policies: Mapping[str, tuple[int, ...]],
    limit: int | None,
) -> SpaceAdapter:
    """The adapter for an environment, given the spaces of each of its agents and, where not all share
    one, the places of those of each policy; ConfigError where the chosen agent cannot use it."""
    change = configuration.learner.agents_change

    def of(seen: Space, acted: Space) -> SpaceAdapter:
        adapter = adapter_for(configuration, seen, acted, limit)
        spec = dataclasses.replace(
            adapter.spec,
            spaces=written(seen, acted),
            agents_change=change,
            agents=len(spaces),
        )
        return dataclasses.replace(adapter, spec=spec)

    if not policies:
        return of(*spaces[0])
    adapter = together({name: of(*spaces[at[0]]) for name, at in policies.items()}, policies)
    return dataclasses.replace(
        adapter, spec=dataclasses.replace(adapter.spec, agents_change=change)
    )


def adapter_for(
    configuration: Configuration, seen: Space, acted: Space, limit: int | None
) -> SpaceAdapter:
    """How the chosen agent sees observations and gives actions of these spaces; ConfigError, with the
    agents that could, when it cannot."""
    learner = configuration.learner
    agent_class = registry.agents.load(learner.agent)
    fit = partial(
        fitted,
        learner.env,
        seen,
        acted,
        nactions=agent_class.discrete_bins(configuration.build("agent", agent_class.Config)),
        max_episode_steps=limit,
        frames=learner.frame_stack,
    )
    try:
        adapter = fit(agent=agent_class)
        if adapter.spec.mask is not None and learner.action_type == "fixed":
            raise ConfigError(
                f"action_type fixed may choose what {learner.env} forbids (action_mask): use variable"
            )
        return adapter
    except ConfigError as error:
        raise ConfigError(f"{error}{agents_that_fit(fit)}") from error


def written(seen: Space, acted: Space) -> dict[str, Any]:
    """The spaces as ``EnvSpec.spaces`` has them; empty where one of them has no such form."""
    try:
        own, given = unflattened(seen), unflattened(acted)
        return {"observation": space_to_json(own), "action": space_to_json(given)}
    except ValueError:
        return {}


def fitted(*spaces: Any, agent: type[ExaAgent], **options: Any) -> SpaceAdapter:
    """``adapt`` for an agent."""
    return adapt(
        *spaces,
        action_kind=agent.action_kind,
        factors=agent.factors_actions,
        masks=agent.respects_masks,
        mixed=agent.mixes_actions,
        **options,
    )


def agents_that_fit(fit: Callable[..., SpaceAdapter]) -> str:
    """The agents for which ``fit(agent=...)`` succeeds, as the end of a message; "" if none."""
    ids = []
    for id in registry.agents.ids():
        with contextlib.suppress(ConfigError):
            fit(agent=registry.agents.load(id))
            ids.append(id)
    return f"; agents that fit: {', '.join(ids)}" if ids else ""


def costs_of(configuration: Configuration) -> tuple[str, ...]:
    """The numbers of info that the agent's constraints limit."""
    agent_class = registry.agents.load(configuration.learner.agent)
    return Constraints.of(configuration.build("agent", agent_class.Config)).names


def build_guard(
    configuration: Configuration, home: Home | None = None, **options: Any
) -> Guard | None:
    """The guard that replaces this environment when it fails; None if failures are raised."""
    learner = configuration.learner
    if learner.env_failure == "raise":
        return None
    return Guard(
        lambda: build_env(configuration, home=home, **options)[0], learner.max_env_failures
    )


def build_agent(configuration: Configuration, spec: EnvSpec, seed: int | None = None) -> ExaAgent:
    """The chosen agent with the chosen network, not yet a learner; for several policies, one agent of
    as many. ``seed`` is by default the run's."""
    learner = configuration.learner
    if spec.policies:
        several = Policies(
            spec, lambda p, own: build_agent(configuration, p.spec, own), learner.seed
        )
        several.total_steps = learner.total_steps
        return several
    agent_class = registry.agents.load(learner.agent)
    network_class = registry.networks.load(learner.model_type)
    network_config = configuration.build("model", getattr(network_class, "Config", NoParameters))
    network = partial(network_of(spec, network_class), network_config, spec.observation)
    agent: ExaAgent = agent_class(
        spec,
        configuration.build("agent", agent_class.Config),
        network,
        learner.seed if seed is None else seed,
    )
    agent.total_steps = learner.total_steps or None  # 0: it makes none
    return agent


def build_evaluator(configuration: Configuration, home: Home) -> Evaluator | None:
    """The evaluator of the policy during training; None without ``eval_interval``."""
    learner = configuration.learner
    if learner.eval_interval is None:
        return None
    env, adapter, limit = build_episode(configuration, home=home)
    guard = build_guard(configuration, home)
    # Not environment 0, whose episodes 'exarl evaluate' plays: these here choose the best weights.
    episode = whole_episode(
        env,
        lambda member: make_episode(
            member, adapter, limit, learner.seed, 1, EVALUATION, guard, log_info=learner.log_info
        ),
    )
    agent = build_agent(configuration, adapter.spec)
    return Evaluator(agent, episode, learner.eval_interval, learner.eval_episodes)


def whole_episode(env: Env, make: Callable[[Env], Episode]) -> Episode | JointEpisode:
    """The episode of an environment, or of all agents of a simulation of several, each made by
    ``make``."""
    episodes = [make(member) for member in members_of(env)]
    return episodes[0] if joint_of(env) is None else JointEpisode(episodes)


def build_workflow(configuration: Configuration) -> ExaWorkflow:
    """The chosen workflow."""
    workflow_class = registry.workflows.load(configuration.learner.workflow)
    config = configuration.build("workflow", getattr(workflow_class, "Config", NoParameters))
    workflow: ExaWorkflow = workflow_class(config)
    return workflow
