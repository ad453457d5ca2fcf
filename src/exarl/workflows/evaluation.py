"""Playing a policy greedily, without learning from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.base import ExaAgent
from exarl.envs.episode import Episode


@dataclass(frozen=True)
class Played:
    """One episode of an evaluation."""

    total_reward: float
    length: int
    terminated: bool


def play(agent: ExaAgent, episode: Episode, on_step: Callable[[Any], None] | None = None) -> Played:
    """One greedy episode; ``on_step`` sees the environment after its reset and every step."""
    episode.begin()
    spec = agent.spec
    memory = {name: array.zeros(1) for name, array in agent.memory.items()}
    terminated = truncated = False
    while not (terminated or truncated):
        if on_step is not None:
            on_step(episode.env)
        observation = np.asarray(episode.observation, spec.observation.dtype)[None]
        actions, _ = agent.action(observation, None, memory) if memory else agent.action(observation)
        action = actions.tolist()[0] if spec.n_actions is not None else actions[0]
        _, _, terminated, truncated = episode.step(action)
    if on_step is not None:
        on_step(episode.env)
    return Played(episode.total_reward, episode.length, terminated)
