"""What an action mask costs per step: in the environment's process, and in the policy.

    python -m benchmarks.masks

Each number is the least of many short samples, so that other work on the machine hardly counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl import registry
from exarl.envs.episode import Episode
from exarl.envs.masks import with_masks
from exarl.envs.spaces import adapt
from exarl.learning.exploration import Streams
from exarl.networks.mlp import MLP, MLPConfig
from exarl.networks.parted import network_of

MASK = np.ones(5, np.int8)
SAMPLES, CALLS = 400, 50


class Plain(gymnasium.Env[Any, Any]):
    """Does nothing."""

    observation_space = spaces.Box(0, 1, (5,), np.float32)
    action_space = spaces.Discrete(5)
    seen = np.zeros(5, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.seen, {}

    def step(self, action: Any) -> Any:
        return self.seen, 0.0, False, False, {}


class Telling(Plain):
    """Does nothing, but tells a mask."""

    def action_masks(self) -> np.ndarray:
        return MASK


def least(call: Callable[[], object]) -> float:
    """Microseconds of a call."""
    samples = []
    for _ in range(SAMPLES):
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        samples.append(time.perf_counter() - started)
    return 1e6 * min(samples) / CALLS


def measured(env: Any, agent_id: str) -> tuple[float, float]:
    """Microseconds of a step of the environment, and of an action of one observation."""
    space = env.observation_space
    options: dict[str, Any] = {"action_kind": "discrete", "nactions": 5, "max_episode_steps": None}
    adapter = adapt("masks", space, env.action_space, masks=True, **options)
    episode, spec = Episode(env, adapter, None, 0, 0), adapter.spec
    episode.begin()
    kind = registry.agents.load(agent_id)
    network = partial(network_of(spec, MLP), MLPConfig((64, 64)), spec.observation)
    agent = kind(spec, kind.Config(), network, 0)
    rows, streams = np.ones((1, *spec.observation.shape), np.float32), Streams(0, [0])
    return least(lambda: episode.step(1)), least(lambda: agent.action(rows, streams))


def main() -> None:
    for agent in ("PPO-v0", "DQN-v0"):
        plain, masked = measured(Plain(), agent), measured(with_masks(Telling()), agent)
        shown = [f"{a:.1f} -> {b:.1f}" for a, b in zip(plain, masked, strict=True)]
        more = sum(masked) - sum(plain)
        sys.stdout.write(
            f"{agent}: step {shown[0]} us, action {shown[1]} us, together +{more:.1f}\n"
        )


if __name__ == "__main__":
    main()
