"""Steps/s of the DQN of Stable-Baselines3 or SBX on CartPole-v1, one update of 64 a step.

Needs an environment of its own with stable-baselines3 (and sbx-rl for `--peer sbx`):

    python benchmarks/peers/sb3_dqn.py --peer sb3 --seed 1

Prints one line, RESULT {...}. The thread limits come from the caller (see dqn_speed.py).
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from window import Window, emit, versions

PACKAGES = ("stable-baselines3", "sbx-rl", "torch", "jax", "gymnasium", "numpy")


class Clock(BaseCallback):
    """Feeds the window with the step count and ends the training with it."""

    def __init__(self, window: Window) -> None:
        super().__init__()
        self.window = window

    def _on_step(self) -> bool:
        return not self.window.at(self.num_timesteps)


def make_agent(peer: str, seed: int) -> Any:
    """The peer's DQN with the settings every peer of this benchmark gets."""
    if peer == "sbx":
        from sbx import DQN
    else:
        from stable_baselines3 import DQN
    return DQN(
        "MlpPolicy",
        DummyVecEnv([lambda: Monitor(gym.make("CartPole-v1"))]),
        learning_rate=1e-3,
        buffer_size=50_000,
        learning_starts=1_000,
        batch_size=64,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=500,
        exploration_fraction=0.5,
        exploration_final_eps=0.05,
        policy_kwargs={"net_arch": [64, 128]},
        seed=seed,
        device="cpu",
    )


def main() -> None:
    """Train until the window is over and print its speed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", choices=("sb3", "sbx"), default="sb3")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    window = Window()
    make_agent(args.peer, args.seed).learn(30_000, callback=Clock(window))
    emit(window, peer=args.peer, seed=args.seed, versions=versions(*PACKAGES))


if __name__ == "__main__":
    main()
