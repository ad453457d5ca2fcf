"""Steps/s of the PPO of Stable-Baselines3 on CartPole-v1, and seconds to a mean reward of 475.

Needs an environment of its own with stable-baselines3:

    python benchmarks/peers/sb3_ppo.py --seed 1 [--solve]

8 environments in one process, rollouts of 128 steps, 4 epochs of 4 minibatches, MLP [64, 64]. Without
``--solve`` it measures the speed between two step counts. With it, training ends when the last 100
episodes have a mean of 475, or after 500,000 steps. Prints one line, RESULT {...}. The thread limits
come from the caller (see ppo_speed.py).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from window import Window, emit, versions

STARTED = time.monotonic() - time.process_time()  # imports before this line belong to the process
ENVS, ROLLOUT, MINIBATCHES = 8, 128, 4
STEPS, TARGET = 500_000, 475


class Speed(BaseCallback):
    """Passes the step count to the window and ends the training with it."""

    def __init__(self, window: Window) -> None:
        super().__init__()
        self.window = window

    def _on_step(self) -> bool:
        return not self.window.at(self.num_timesteps)


class Solved(BaseCallback):
    """Ends the training when the last 100 episodes have reached the target."""

    def __init__(self) -> None:
        super().__init__()
        self.returns: deque[float] = deque(maxlen=100)
        self.seconds: float | None = None

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self.returns.extend(info["episode"]["r"] for info in infos if "episode" in info)
        if len(self.returns) == 100 and np.mean(self.returns) >= TARGET:
            self.seconds = time.monotonic() - STARTED
        return self.seconds is None


def make_agent(seed: int) -> PPO:
    """PPO with the settings that every program of this comparison gets."""
    return PPO(
        "MlpPolicy",
        DummyVecEnv([lambda: Monitor(gym.make("CartPole-v1"))] * ENVS),
        learning_rate=2.5e-4,
        n_steps=ROLLOUT,
        batch_size=ENVS * ROLLOUT // MINIBATCHES,
        n_epochs=4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.01,
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
        device="cpu",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--solve", action="store_true", help="train until the mean reward is 475")
    args = parser.parse_args()
    torch.set_num_threads(1)
    about = {"seed": args.seed, "versions": versions("stable-baselines3", "torch", "gymnasium")}
    agent = make_agent(args.seed)
    if args.solve:
        agent.learn(STEPS, callback=(solved := Solved()))
        print("RESULT " + json.dumps({**about, "wall_from_start": solved.seconds}), flush=True)
    else:
        agent.learn(STEPS, callback=Speed(window := Window(10_000, 110_000)))
        emit(window, **about)


if __name__ == "__main__":
    main()
