"""Settings that suit an environment that was measured: those of a run that its user has not chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exarl import registry
from exarl.agents.algorithm import AlgorithmConfig
from exarl.agents.offpolicy import OffPolicyConfig
from exarl.config import Configuration, is_default
from exarl.envs.guard import close_quietly
from exarl.envs.measured import Measured, measure
from exarl.envs.watched import Watched
from exarl.run.build import build_env

SMALL, LARGE, GOOD = 1.0, 3000.0, 100.0
"""Agents learn well from values between the first two; others are scaled to the third."""
BLOCK_S = 10.0
"""The longest that actors should act before the learner learns from it, in seconds."""
UPDATE_S = 1e-3
"""About how long an update takes; agents with a replay make about one for each step."""
FEWEST = 50  # steps from which the size of rewards is seen
_MANY = 500  # steps without an end, from which a limit is proposed
_LIMIT = 1000
_STEPS, _SECONDS = 2000, 5.0  # for which an environment is measured


@dataclass(frozen=True)
class ProposedSettings:
    """``settings`` by their keys, ``procs`` ranks (None: one process), and a reason for each."""

    settings: Mapping[str, Any]
    procs: int | None
    reasons: tuple[str, ...]

    def words(self) -> list[str]:
        """The proposal as flags of ``exarl train``."""
        flags = {**self.settings, **({"procs": self.procs} if self.procs else {})}
        return [word for key, value in flags.items() for word in (f"--{key}", f"{value}")]


def propose(
    found: Measured, configuration: Configuration, limit: int | None, cores: int
) -> ProposedSettings:
    """What to set for the agent of ``configuration``, as far as only its defaults are in force.

    ``limit`` is the number of steps after which the environment's episodes are cut.
    """
    agent = registry.agents.load(configuration.learner.agent)
    kind: type = agent.Config
    open_ = {key for key, origin in configuration.origins.items() if is_default(origin)}
    settings: dict[str, Any] = {}
    reasons = []
    wanted = _reward_scale(found, configuration, kind) if "agent.reward_scale" in open_ else None
    if wanted is not None:
        settings["reward_scale"] = wanted
        reasons.append(
            f"reward_scale {wanted:g}: rewards sum up to {found.value:.2g}, and agents learn well from"
            f" {SMALL:g} to {LARGE:g}"
        )
    endless = limit is None and found.episode is None and found.steps >= _MANY
    if endless and "learner.n_steps" in open_:
        settings["n_steps"] = _LIMIT
        reasons.append(f"n_steps {_LIMIT}: no episode has ended in {found.steps} steps")
    width = configuration.learner.envs_per_actor
    if width % found.agents and "learner.envs_per_actor" in open_:
        settings["envs_per_actor"] = width = found.agents
        reasons.append(f"envs_per_actor {width}: one for each agent of the simulation")
    replays = issubclass(kind, OffPolicyConfig)
    block_s = found.step_s * max(1, width // found.agents)
    if replays and "learner.block_steps" in open_:
        block = max(1, int(BLOCK_S / block_s))
        if block < configuration.learner.block_steps:
            settings["block_steps"] = block
            reasons.append(
                f"block_steps {block}: a step takes {found.step_s:.2g} s, and the learner should"
                f" not wait for more than {BLOCK_S:g} s"
            )
    actors = min(cores - 1, math.ceil(found.step_s / UPDATE_S))
    alone = configuration.learner.workflow == "sync" and "learner.workflow" in open_
    if not (replays and alone and actors > 1 and configuration.learner.process_per_env == 1):
        return ProposedSettings(settings, None, tuple(reasons))
    settings["workflow"] = "async"
    reasons.append(
        f"workflow async with {actors} actors: a step takes as long as {found.step_s / UPDATE_S:,.0f}"
        f" updates, and there are {cores} cores"
    )
    return ProposedSettings(settings, 1 + actors, tuple(reasons))


def measured(configuration: Configuration) -> tuple[Measured, int | None]:
    """The environment of a run, measured, and the number of steps after which its episodes are cut."""
    env, limit = build_env(configuration)
    try:
        found = measure(Watched(env, lambda *_: None), _STEPS, _SECONDS)
    finally:
        close_quietly(env)
    return found, configuration.learner.n_steps or limit


def _reward_scale(found: Measured, configuration: Configuration, kind: type) -> float | None:
    """The factor on rewards that brings values to a size from which agents learn well, of one digit:
    1, 2 or 5; None where they have one, or it does not matter."""
    values = configuration.values["agent"]
    if (
        not issubclass(kind, AlgorithmConfig)
        or values["normalize_rewards"]
        or values["reward_clip"]
    ):
        return None
    if found.steps < FEWEST or not found.value > 0 or SMALL <= found.value <= LARGE:
        return None
    factor = GOOD / found.value
    scale = 10.0 ** math.floor(math.log10(factor))
    return float(f"{scale * max(d for d in (1, 2, 5) if d * scale <= factor * 1.001):.1g}")
