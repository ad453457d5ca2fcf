"""RLlib's part of benchmarks/elastic_speed.py, for a Python that has ray[rllib] and torch.

    python benchmarks/peers/rllib_sleep.py --algo PPO|IMPALA --runners 4 [--seconds 20] [--step 0.01]

Prints one line of JSON: seconds from the start of the process to the end of the first training, and the
steps a second after that.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


class Sleeps(gymnasium.Env[Any, Any]):
    """ExaLatency-v0 without EXARL: 10 ms a step, episodes of 100 steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config: dict[str, Any]) -> None:
        self._pause = config["step"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._left = 100
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        time.sleep(self._pause)
        self._left -= 1
        return np.zeros(4, np.float32), 1.0, False, not self._left, {}


def age() -> float:
    """Seconds since this process began."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--algo", choices=["PPO", "IMPALA"], default="PPO")
    parser.add_argument("--runners", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--step", type=float, default=0.01)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.algorithms.ppo import PPOConfig

    count = options.runners
    ray.init(
        num_cpus=count + 2, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    config = (PPOConfig if options.algo == "PPO" else IMPALAConfig)()
    config.framework("torch").debugging(seed=1, log_level="ERROR")
    config.environment(Sleeps, env_config={"step": options.step})
    config.learners(num_learners=0).reporting(min_time_s_per_iteration=0)
    if options.algo == "PPO":
        config.env_runners(num_env_runners=count, rollout_fragment_length=32)
        config.training(train_batch_size=32 * count, minibatch_size=8 * count, num_epochs=4)
    else:
        config.env_runners(num_env_runners=count, rollout_fragment_length=32)
        config.training(train_batch_size_per_learner=32 * count).reporting(
            min_time_s_per_iteration=1
        )
    algorithm = config.build_algo()

    def trained() -> int:
        found = algorithm.train()
        return int(found.get("num_env_steps_sampled_lifetime", 0))

    trained()
    first = age()
    warm = time.monotonic() + 5
    while time.monotonic() < warm:
        begun = trained()
    started = time.monotonic()
    while time.monotonic() - started < options.seconds:
        steps = trained()
    speed = (steps - begun) / (time.monotonic() - started)
    print(json.dumps({"first_s": round(first, 1), "steps_per_s": round(speed, 1)}))


if __name__ == "__main__":
    main()
