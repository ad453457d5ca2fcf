"""What a process of a run is made of, whether MPI, Ray or nothing connects it with others."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from exarl.acting.rollout import Rollout
from exarl.agents.base import ExaAgent
from exarl.agents.prior import Prior
from exarl.comm.channel import Channel
from exarl.comm.codec import BlockCodec
from exarl.config import STOPS, LearnerConfig, tuned_in
from exarl.display.progress import Progress, make_progress
from exarl.envs import group
from exarl.envs.base import Env
from exarl.envs.episode import Episode
from exarl.envs.guard import close_quietly
from exarl.envs.joint import members_of
from exarl.envs.member import make_episode
from exarl.envs.spaces import SpaceAdapter
from exarl.errors import ConfigError
from exarl.learning.exploration import Streams
from exarl.records.checkpoint import fitting
from exarl.run.beginning import begin_with
from exarl.run.build import Home, build_agent, build_episode, build_evaluator, build_guard, costs_of
from exarl.run.recording import build_recording
from exarl.run.situation import situation_of
from exarl.run.start import Stored
from exarl.run.task import Peers, ProcessTask
from exarl.training.divergence import MOST_ROLLBACKS
from exarl.training.loop import LearningLoop
from exarl.training.process import Actor, Learner, RunProcess
from exarl.types import PLACE, Arrays, ArraySpec


@dataclass(frozen=True)
class Environments:
    """The environments of a process: as made, and as episodes to act in.

    ``shared`` connects the ranks that step them together, if there are several.
    """

    envs: Sequence[Any]
    episodes: Sequence[Episode]
    adapter: SpaceAdapter
    shared: Channel | None


def build_environments(
    task: ProcessTask, peers: Peers, stack: contextlib.ExitStack
) -> Environments:
    """Make this rank's environments; ``stack`` closes those of an actor."""
    config, role = task.config, task.role
    assert role.group is not None
    shared = None
    if config.process_per_env > 1:
        assert peers.group is not None
        shared = Channel(peers.group)
    envs: list[Any] = []
    episodes: list[Episode] = []
    ids = task.layout.env_ids(role.group, config.envs_per_actor)
    while len(episodes) < len(ids):
        slot = len(episodes)
        env_id = ids[slot]
        home = Home(task.run, env_id, role.rank)
        env, adapter, limit = build_episode(task.configuration, peers.group, home)
        envs.append(env)
        if shared is not None and not role.member:
            env = group.join(env, shared, slot)
        guard = build_guard(task.configuration, home)
        told, costs = config.log_info, costs_of(task.configuration)
        make = partial(make_episode, guard=guard, log_info=told, costs=costs)
        members = members_of(env)
        check_width(config, env)
        episodes += [
            make(member, adapter, limit, config.seed, number)
            for number, member in enumerate(members, env_id)
        ]
    if shared is not None and not role.member:
        stack.callback(group.dismiss, shared)
    if not role.member:
        for episode in episodes:
            stack.callback(episode.close)
    return Environments(envs, episodes, adapter, shared)


def check_width(config: LearnerConfig, env: Env) -> None:
    """ConfigError unless an actor's environments are those of all agents of simulations like ``env``,
    which is then closed."""
    agents = len(members_of(env))
    if width := -config.envs_per_actor % agents:
        close_quietly(env)
        raise ConfigError(
            f"'{config.env}' has {agents} agents, each of which is one of an actor's environments:"
            f" envs_per_actor must be a multiple of {agents}, such as {config.envs_per_actor + width}"
        )


def build_process(task: ProcessTask, peers: Peers, environments: Environments | None) -> RunProcess:
    """What learners and actors have in common, the acting half of the agent included."""
    adapter = environments.adapter if environments is not None else None
    spec = peers.share_spec(adapter.spec if adapter is not None else None)
    agent = build_agent(task.configuration, spec)
    if task.config.record:
        agent.recorded = {**agent.recorded, PLACE: ArraySpec((2,), "int64")}
    return RunProcess(
        config=task.config,
        layout=task.layout,
        role=task.role,
        run_directory=task.run,
        clock=task.clock,
        signals=task.signals,
        agent=agent,
        codec=BlockCodec(spec, agent.recorded, agent.lead_steps, bool(task.config.log_info)),
        channel=peers.channel,
        players=peers.players,
        envs=environments.envs if environments is not None else (),
        adapter=adapter,
    )


def build_actor(
    process: RunProcess, environments: Environments, states: Arrays, *, fresh: bool
) -> Actor:
    """The rollout over ``environments``, which go on from ``states``. CheckpointError where these do
    not fit."""
    agent, config, shared = process.agent, process.config, environments.shared

    def spread(rows: Arrays) -> Arrays:
        assert shared is not None
        return group.spread(shared, agent.get_weights(), rows, partial(generate, agent))

    rollout = Rollout(
        agent,
        environments.episodes,
        Streams(config.seed, [episode.env_id for episode in environments.episodes]),
        config.block_steps,
        fixed_action=config.action_type == "fixed",
        spread=spread if shared is not None else None,
        moved=process.clock.moved,
    )
    if states:
        with fitting(process.run_directory):
            rollout.restore(states)
    return Actor(**vars(process), rollout=rollout, fresh=fresh)


def build_learner(
    task: ProcessTask,
    process: RunProcess,
    peers: Peers,
    stored: Stored | None,
    actor: Actor | None,
    progress: Progress,
    stack: contextlib.ExitStack,
    prior: Prior | None = None,
) -> Learner:
    """The learning half of the agent in its loop, going on from ``stored``; ``stack`` closes it."""
    config, first = task.config, task.role.rank == 0
    learning = build_agent(task.configuration, process.agent.spec)
    learning.prior = prior
    if config.clone:
        learning.metrics = (*learning.metrics, "clone_loss")
    if peers.team is not None:
        learning.join_team(peers.team)
    learning.set_learner()
    if stored is None and config.start_from:
        begin_with(learning, config, task.run, task.role.rank)
    beyond = task.layout.actors * config.envs_per_actor  # no training environment has this number
    home = Home(task.run, beyond, task.role.rank, "evaluation")
    say_start(task, stored, progress)
    loop = LearningLoop(
        learning,
        config,
        task.run if first else None,
        progress,
        task.clock,
        task.signals,
        stored.checkpoint if stored is not None else None,
        in_team=peers.team is not None,
        check_every=getattr(task.workflow.config, "check_learners", 0),
        evaluator=build_evaluator(task.configuration, home) if first else None,
        situation=situation_of(task.configuration, task.workflow, task.layout),
        model=task.configuration.values["model"],
        callbacks=task.callbacks,
        recording=build_recording(
            task.configuration, process.agent.spec, task.run, task.clock, fresh=stored is None
        ),
    )
    stack.callback(loop.abandon)
    if prior is not None:
        steps = sum(block.steps for block in prior.blocks)
        progress.note(f"prior data: {len(prior.blocks):,} episodes, {steps:,} steps")
    return Learner(
        **vars(process),
        loop=loop,
        # With prior data the first weights do not follow from the seed alone.
        fresh=stored is None and prior is None,
        states=stored.states if stored is not None else {},
        backlog=stored.backlog if stored is not None else (),
        team=peers.team,
        actor_pool=peers.actor_pool,
        actor=actor,
    )


def say_start(task: ProcessTask, stored: Stored | None, progress: Progress) -> None:
    """Show where the run is, and with what it begins or from where it goes on."""
    progress.note(f"run directory {task.run.path}")
    if stored is None:
        if task.config.start_from:
            parts = ", ".join(task.config.start_parts)
            progress.note(f"beginning with {parts} of {task.config.start_from}")
        for note in tuned_in(task.configuration):
            progress.note(note)
        return
    other = f" with other random numbers (rollback {task.rollbacks} of {MOST_ROLLBACKS})"
    with fitting(task.run):
        steps = int(stored.checkpoint.numbers["counters"]["steps"])
    progress.note(f"continuing at step {steps:,}" + other * bool(task.rollbacks))


def open_progress(show: Callable[[], Progress] | None, stack: contextlib.ExitStack) -> Progress:
    """What ``show`` makes, or a display that shows nothing; ``stack`` closes it."""
    if show is not None:
        progress = show()
    else:
        progress = make_progress("", {}, stack.enter_context(open(os.devnull, "w")))
    stack.callback(progress.close)
    return progress


def terminal_progress(config: LearnerConfig) -> Progress:
    """The progress of a run on the terminal."""
    stops = {name: getattr(config, name) for name in STOPS}
    title = f"{config.agent} · {config.env} · {config.workflow}"
    return make_progress(title, stops, sys.stderr)


def generate(agent: ExaAgent, weights: np.ndarray, rows: Arrays) -> Arrays:
    """A rank's share of preparing a block."""
    agent.set_weights(weights)
    return agent.generate(rows)
