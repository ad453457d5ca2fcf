"""Steps/s of CleanRL's ppo.py on CartPole-v1 with 8 environments, and seconds to a mean of 475.

Runs your own, unedited copy of that file (it is not part of this repository):

    python benchmarks/peers/cleanrl_ppo.py --script path/to/cleanrl/ppo.py --seed 1

in an environment with torch, tensorboard and gymnasium. The settings go in as its command line: its
defaults but for 8 environments. It was written for the old gym, in whose place it gets Gymnasium
with the old names: step() gives four values and a list of information. That step also drives the clock.
The run ends when the last 100 episodes have a mean of 475, or after 500,000 steps. Prints one line,
RESULT {...}. The thread limits come from the caller (see ppo_speed.py).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np

STARTED = time.monotonic() - time.process_time()  # imports before this line are the process's too
ENVS, FIRST_STEP, LAST_STEP = 8, 20_000, 100_000


class Over(Exception):
    """Ends the script's loop."""


class OldVector:
    """Gymnasium's environments in one process, with the interface of gym 0.21."""

    marks: dict[str, float]

    def __init__(self, makers: Any) -> None:
        self._envs = [make() for make in makers]
        self.single_observation_space = self._envs[0].observation_space
        self.single_action_space = self._envs[0].action_space
        self._steps = 0
        self._returns: deque[float] = deque(maxlen=100)

    def reset(self) -> np.ndarray:
        return np.stack([env.reset()[0] for env in self._envs])

    def step(self, actions: Any) -> tuple[Any, ...]:
        self._clock()
        seen, rewards, dones, infos = [], [], [], []
        for env, action in zip(self._envs, actions, strict=True):
            observation, reward, terminated, truncated, info = env.step(action)
            if done := terminated or truncated:
                self._returns.append(float(info["episode"]["r"]))
                observation, _ = env.reset()
            seen.append(observation)
            rewards.append(reward)
            dones.append(done)
            infos.append(info)
        self._steps += len(self._envs)
        return np.stack(seen), np.array(rewards), np.array(dones), infos

    def close(self) -> None:
        pass

    def _clock(self) -> None:
        now, marks = time.monotonic(), self.marks
        if self._steps >= FIRST_STEP:
            marks.setdefault("first", now)
        if self._steps >= LAST_STEP:
            marks.setdefault("last", now)
        if len(self._returns) == 100 and np.mean(self._returns) >= 475:
            marks.setdefault("solved", now)
        if "solved" in marks and "last" in marks:
            raise Over


class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment with the method ``seed`` of the old gym."""

    def seed(self, seed: int) -> None:
        self.env.reset(seed=seed)


def old_gym(marks: dict[str, float]) -> ModuleType:
    """A module ``gym`` with as much as the script uses."""
    OldVector.marks = marks
    module = ModuleType("gym")
    module.Env, module.spaces = gymnasium.Env, gymnasium.spaces  # type: ignore[attr-defined]
    module.make = gymnasium.make  # type: ignore[attr-defined]
    module.wrappers, module.vector = ModuleType("wrappers"), ModuleType("vector")  # type: ignore[attr-defined]
    recorded = gymnasium.wrappers.RecordEpisodeStatistics
    module.wrappers.RecordEpisodeStatistics = lambda env: Seeded(recorded(env))
    module.vector.SyncVectorEnv = OldVector
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    marks: dict[str, float] = {}
    sys.modules["gym"] = old_gym(marks)
    sys.argv = [str(args.script), "--seed", str(args.seed), "--num-envs", str(ENVS)]
    script = str(args.script.resolve())
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Over):
        os.chdir(folder)  # the script writes its logs to ./runs
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                runpy.run_path(script, run_name="__main__")
        finally:
            os.chdir("/")
    rate = (LAST_STEP - FIRST_STEP) / (marks["last"] - marks["first"])
    solved = marks["solved"] - STARTED if "solved" in marks else None
    found = {"steps_per_s": rate, "wall_from_start": solved, "seed": args.seed}
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
