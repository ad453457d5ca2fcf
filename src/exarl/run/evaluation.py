"""Playing episodes with policies of any kind, in this process or on the ranks of a job."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from exarl import registry
from exarl.acting.evaluation import Choose, Move, OnStep, Played
from exarl.acting.joint_episode import JointEpisode
from exarl.config import Configuration, parse_flags
from exarl.envs.episode import Episode
from exarl.envs.layout import apart
from exarl.envs.member import MemberEpisode
from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory, open_run
from exarl.records.metrics import info_columns
from exarl.run.abort import abort
from exarl.run.build import adapter_of, build_agent
from exarl.run.configure import configure, configure_again
from exarl.run.policy import TrainedPolicy, policy_of
from exarl.run.residual import ResidualPolicy, controller_named, without_controller
from exarl.run.stage import Stage, check_groups

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Controller(Protocol):
    """A policy of one's own, in the units of the environment.

    ``reset()``, if it has that, is called when an episode begins. If ``act`` has a parameter ``mask``,
    it is told which actions are allowed, where the environment says it.
    """

    def act(self, observation: Any) -> Any: ...


AnyPolicy: TypeAlias = "str | os.PathLike[str] | Controller | Callable[[Any], Any]"
"""A run directory, ``"module:name"`` of a controller, the id of an agent that acts untrained, or a
policy itself: an object with ``act(observation)``, or a function of the observation."""


@dataclass(frozen=True)
class EvaluationResult:
    """The episodes that a policy played."""

    policy: str
    env: str
    episodes: tuple[Played, ...]
    steps: int | None = None
    """Environment steps that the policy was trained with; None if it was not trained."""

    @property
    def rewards(self) -> np.ndarray:
        """The return of each episode."""
        return np.array([played.total_reward for played in self.episodes])

    @property
    def lengths(self) -> np.ndarray:
        """The number of steps of each episode."""
        return np.array([played.length for played in self.episodes])

    @property
    def reward_mean(self) -> float:
        return float(self.rewards.mean())

    @property
    def reward_std(self) -> float:
        """The standard deviation of the returns; 0 for a single episode."""
        return float(self.rewards.std(ddof=1)) if len(self.episodes) > 1 else 0.0

    @property
    def info(self) -> dict[str, float]:
        """The numbers of the environment's info (``log_info``) over all episodes, by column."""
        return info_columns(played.info for played in self.episodes)

    def __str__(self) -> str:
        rewards = self.rewards
        return (
            f"reward {self.reward_mean:.3f} +- {self.reward_std:.3f}"
            f" (min {rewards.min():.3f}, max {rewards.max():.3f}),"
            f" length {self.lengths.mean():.1f}, {len(self.episodes)} episodes"
        )


class Contestant(NamedTuple):
    """A policy that is evaluated: its name, the environment, how it acts, and the steps it was trained
    with."""

    name: str
    env: str
    choose: Choose
    steps: int | None


class Spectator(NamedTuple):
    """Who watches an evaluation. The default sees nothing."""

    on_episode: Callable[[Contestant, int, Played], None] = lambda contestant, number, played: None
    """Called on the first rank with each episode of each policy, in order."""
    on_step: OnStep | None = None
    """Called with the first episode, after reset and after each step."""
    on_start: Callable[[Stage], None] = lambda stage: None
    """Called once, before the first episode."""
    on_move: Callable[[Move], None] | None = None
    """Called with each step that this process plays."""


def evaluate(
    policy: AnyPolicy,
    env: str | None = None,
    *,
    episodes: int = 10,
    seed: int | None = None,
    best: bool = False,
    checkpoint: int | None = None,
    comm: Intracomm | None = None,
    trust: bool = False,
    **parameters: Any,
) -> EvaluationResult | None:
    """Play ``episodes`` with a policy, without exploration.

    A run is played in its own environment; for another policy ``env`` names one. ``parameters`` are the
    environment's. All policies get the same episodes for the same ``seed``. ``best`` and ``checkpoint``
    select the weights of a run, as ``load`` does. The ranks of ``comm`` share the episodes; the result
    is None on all but the first.
    """
    given = parameters | ({} if seed is None else {"seed": seed}) | ({"env": env} if env else {})
    results = compare(
        [policy], given, episodes, best=best, checkpoint=checkpoint, comm=comm, trust=trust
    )
    return results[0] if results else None


def compare(
    policies: Sequence[AnyPolicy],
    given: Mapping[str, Any],
    episodes: int = 10,
    *,
    flags: Sequence[str] = (),
    best: bool = False,
    checkpoint: int | None = None,
    comm: Intracomm | None = None,
    trust: bool = False,
    spectator: Spectator = Spectator(),  # noqa: B008 - immutable
    **options: Any,
) -> list[EvaluationResult]:
    """``evaluate`` for several policies in the same episodes of one environment.

    ``given`` and then ``flags`` change the configuration, ``options`` go to the environment's
    constructor. Ranks other than the first return no results.
    """
    if episodes < 1:
        raise ConfigError(f"episodes is a whole number of at least 1, not {episodes}")
    sources = [source_of(policy) for policy in policies]
    settings = {
        i: configure_again(source, flags, trust, changes=given)
        for i, source in enumerate(sources)
        if isinstance(source, RunDirectory)
    }
    check_one_environment([(policies[i], each) for i, each in settings.items()])
    if not settings and not {"env", "learner.env"} & {*given, *parse_flags(flags)}:
        raise ConfigError("which environment? without a run it has to be given: --env ID")
    common = next(iter(settings.values()), None) or configure(None, flags, given)
    check_groups(common.learner.process_per_env, comm.size if comm is not None else 1)
    try:
        with Stage(without_controller(common), comm, options) as stage:
            if stage.serve():
                return []
            contestants = []
            for i, source in enumerate(sources):
                acting = source
                if isinstance(source, RunDirectory):
                    acting = policy_of(
                        source,
                        settings[i],
                        stage.spaces,
                        stage.policies,
                        checkpoint=checkpoint,
                        best=best,
                    )
                elif isinstance(source, str):
                    own = configure(
                        None, flags, {"env": common.learner.env, **given, "agent": source}
                    )
                    acting = untrained(own, stage)
                elif isinstance(source, type):
                    acting = source(env=stage.env) if "env" in parameters_of(source) else source()
                contestants.append(contestant(name_of(policies[i]), common.learner.env, acting))
            spectator.on_start(stage)
            return _play_all(contestants, stage, episodes, spectator)
    except BaseException as error:
        if comm is not None:
            abort(comm, f"rank {comm.rank}", error)
        raise


def _play_all(
    contestants: Sequence[Contestant],
    stage: Stage,
    episodes: int,
    spectator: Spectator,
) -> list[EvaluationResult]:
    results: list[EvaluationResult] = []
    for each in contestants:
        watch = None if results else spectator.on_step
        told = partial(spectator.on_episode, each)
        played = stage.play(each.choose, episodes, told, watch, spectator.on_move)
        results.append(EvaluationResult(each.name, each.env, played, each.steps))
    return results if stage.first else []


def source_of(policy: AnyPolicy) -> Any:
    """What stands behind the name of a policy: its run, the id of an agent, or what a module has under
    that name. A policy itself is returned as it is. ConfigError where there is none."""
    if not isinstance(policy, str | os.PathLike):
        return policy
    text = os.fspath(policy)
    if Path(text).exists() or (":" not in text and text not in registry.agents):
        return open_run(text, fixed=True)
    if text in registry.agents:
        return text
    return controller_named(text)


def check_one_environment(settings: Sequence[tuple[AnyPolicy, Configuration]]) -> None:
    """ConfigError unless all runs have the environment of the first, with the same parameters."""
    for policy, other in settings[1:]:
        name, first = settings[0]
        if other.learner.env != first.learner.env:
            differs = f"{first.learner.env} and {other.learner.env}"
        elif other.values["env"] != first.values["env"]:
            differs = f"{first.learner.env} with other parameters"
        else:
            continue
        raise ConfigError(f"{name} and {policy} have different environments: {differs}")


def untrained(configuration: Configuration, stage: Stage) -> TrainedPolicy:
    """A new agent, as it begins."""
    residual = ResidualPolicy.of(configuration, stage.spaces[0])
    acting = [residual.spaces] if residual is not None else stage.spaces
    adapter = adapter_of(configuration, acting, stage.policies, configuration.learner.n_steps)
    agent = build_agent(configuration, adapter.spec)
    return TrainedPolicy(agent, adapter, stage.spaces[0], residual=residual)


def parameters_of(function: Callable[..., Any]) -> set[str]:
    """The names of the parameters of a function, or of the constructor of a class."""
    try:
        return {*inspect.signature(function).parameters}
    except ValueError:  # of a type that Python knows no signature of
        return set()


def name_of(policy: AnyPolicy) -> str:
    if isinstance(policy, str | os.PathLike):
        return os.fspath(policy)
    return str(getattr(policy, "__name__", type(policy).__name__))


def contestant(name: str, env: str, policy: Any) -> Contestant:
    """How ``policy`` acts; ConfigError if it does not."""
    act = getattr(policy, "act", policy)
    if not callable(act):
        raise ConfigError(f"{name} is no policy: it has no act(observation), nor can it be called")
    reset, asks = getattr(policy, "reset", lambda: None), {"mask", "agent"} & parameters_of(act)

    def choose(episode: Episode | JointEpisode) -> Any:
        if not episode.length:
            reset()
            if isinstance(policy, TrainedPolicy):
                policy.agent.begin_episode(episode.number)
        elif isinstance(policy, TrainedPolicy) and isinstance(episode, JointEpisode):
            policy.reset(episode.fresh)
        several = isinstance(episode, JointEpisode)
        members = episode.members if isinstance(episode, JointEpisode) else [episode]
        if isinstance(policy, TrainedPolicy):
            actions = policy.act_on([member.raw for member in members])
        else:
            actions = [_asked(act, asks, member) for member in members]
        return actions if several else actions[0]

    return Contestant(name, env, choose, getattr(policy, "steps", None))


def _asked(act: Callable[..., Any], asks: set[str], episode: Episode) -> Any:
    """What a controller does in an episode, told what it ``asks`` for; None for an agent that is not
    there."""
    if isinstance(episode, MemberEpisode) and not episode.present:
        return None
    observation, mask = apart(episode.env.observation_space, episode.raw)
    told = {"mask": mask, "agent": episode.agent}
    return act(observation, **{name: told[name] for name in asks if told[name] is not None})
