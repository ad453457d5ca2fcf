"""One environment as the rollout sees it: seeded episode by episode, cut, counted, restorable."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from exarl.envs.base import can_snapshot
from exarl.envs.spaces import SpaceAdapter
from exarl.errors import EnvironmentFailure
from exarl.learning.exploration import EPISODE, episode_seed
from exarl.types import Arrays

log = logging.getLogger(__name__)


class Episode:
    """Runs one episode after another in an environment of its own.

    Episode n of environment ``env_id`` starts from a seed that depends on nothing else, so the
    present episode can be restored from its number and its actions when the environment itself
    cannot give its state.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        adapter: SpaceAdapter,
        limit: int | None,
        seed: int,
        env_id: int,
        kind: int = EPISODE,
    ) -> None:
        self.env = env
        self.env_id = env_id
        self.number = -1
        self.length = 0
        self.total_reward = 0.0
        self.observation: Any = None
        self.restarts = 0
        self._adapter = adapter
        self._shape = adapter.spec.observation.shape[adapter.frames > 1 :]
        self._limit = limit
        self._seed = seed
        self._kind = kind
        self._snapshots = can_snapshot(env)
        self._actions: list[Any] = []

    def begin(self) -> Any:
        """Start the next episode; its first observation."""
        return self._start(self.number + 1)

    def step(self, action: Any) -> tuple[Any, float, bool, bool]:
        """Observation, reward, terminated, truncated after ``action`` (the agent's form of it)."""
        if not self._snapshots:
            self._actions.append(action)
        raw, reward, terminated, truncated, _ = self.env.step(self._adapter.decode(action))
        self.length += 1
        self.total_reward += float(reward)
        truncated = bool(truncated) or (self.length == self._limit and not terminated)
        self._see(raw, "step")
        return self.observation, float(reward), bool(terminated), truncated

    def state(self) -> Arrays:
        """The running episode as named arrays."""
        arrays = {
            "number": np.array(self.number),
            "length": np.array(self.length),
            "total_reward": np.array(self.total_reward),
            "observation": np.array(self.observation),
        }
        if self._snapshots:
            kept = self.env.unwrapped.get_state()  # type: ignore[attr-defined]
            return arrays | {f"env/{name}": np.asarray(array) for name, array in kept.items()}
        spec = self._adapter.spec.action
        shape = (len(self._actions), *spec.shape)
        return arrays | {"actions": np.array(self._actions, spec.dtype).reshape(shape)}

    def restore(self, state: Arrays) -> None:
        """Continue the episode that ``state`` described, or begin the next if it cannot be."""
        self._start(int(state["number"]))
        kept = {n.removeprefix("env/"): a for n, a in state.items() if n.startswith("env/")}
        if self._snapshots and kept:
            self.env.unwrapped.set_state(kept)  # type: ignore[attr-defined]
            self.observation = state["observation"]  # with the frames before, where stacked
            self.length = int(state["length"])
        else:
            for action in state.get("actions", ()):
                *_, terminated, truncated = self.step(action)
                if terminated or truncated:  # a running episode has not ended: this is another one
                    break
        self.total_reward = float(state["total_reward"])
        same = self.length == int(state["length"]) and np.array_equal(
            np.asarray(self.observation), state["observation"], equal_nan=True
        )
        if not same:
            log.warning(
                "environment %d: episode %d could not be played again to where it was (the"
                " environment is not deterministic, or changed); a new episode begins",
                self.env_id,
                self.number,
            )
            self.restarts += 1
            self.begin()

    def close(self) -> None:
        self.env.close()

    def _start(self, number: int) -> Any:
        seed = episode_seed(self._seed, self.env_id, number, self._kind)
        raw, _ = self.env.reset(seed=seed)
        self.number, self.length, self.total_reward = number, 0, 0.0
        self._actions = []
        self._see(raw, "reset")
        return self.observation

    def _see(self, raw: Any, call: str) -> None:
        seen, expected = self._adapter.encode(raw), self._shape
        found = getattr(seen, "shape", None)
        if found != expected and np.shape(seen) != expected:
            raise EnvironmentFailure(
                f"environment {self.env_id}: {call} returned an observation of shape"
                f" {np.shape(seen)}, its space says {expected}"
            )
        frames = self._adapter.frames
        if frames == 1:
            self.observation = seen
        elif call == "reset":
            self.observation = np.stack([seen] * frames)
        else:
            self.observation = np.concatenate([self.observation[1:], np.asarray(seen)[None]])


def check_finite(env_ids: Sequence[int], *arrays: np.ndarray) -> None:
    """EnvironmentFailure naming the environment when a number in [T, B, ...] is not finite."""
    if all(np.isfinite(array).all() for array in arrays):
        return
    for column, env_id in enumerate(env_ids):
        if not all(np.isfinite(array[:, column]).all() for array in arrays):
            raise EnvironmentFailure(f"environment {env_id} returned NaN or infinity")
