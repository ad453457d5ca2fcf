"""What Stable-Baselines3 and SBX learn with their tuned settings, on the seeds of learning/run.py.

    PYTHON benchmarks/peers/learning.py TASK ... [--seeds 1001-1020] [--steps N] >> peers.jsonl
    python benchmarks/learning/run.py --table DIR/results.json peers.jsonl

PYTHON has stable_baselines3, sbx-rl and the environments. The settings are those of the RL Zoo for the
pair (the agents with a replay of continuous actions run in SBX, all others in SB3). Like our own runs,
each is judged by ten greedy episodes, 25 times over the same number of steps, and at its end by 100.
With ``--steps`` a run ends sooner, after as many of the 25. One line of JSON per seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "learning"))
from run import EVALUATIONS, JUDGED_SEEDS, TASKS, seeds_of

WIDE = {"net_arch": [256, 256]}
ZOO: dict[str, dict[str, Any]] = {
    "DQN-v0/CartPole-v1": {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "gamma": 0.99,
        "learning_starts": 1000,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": WIDE,
    },
    "A2C-v0/CartPole-v1": {"n_envs": 8, "ent_coef": 0.0},
    "PPO-v0/CartPole-v1": {
        "n_envs": 8,
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "learning_rate": "linear 0.001",
        "clip_range": "linear 0.2",
    },
    "DDPG-v0/Pendulum-v1": {"gamma": 0.98, "buffer_size": 200_000, "noise": 0.1},
    "TD3-v0/Pendulum-v1": {"gamma": 0.98, "buffer_size": 200_000, "noise": 0.1},
    "SAC-v0/Pendulum-v1": {"learning_rate": 1e-3},
    "PPO-v0/Pendulum-v1": {
        "n_envs": 4,
        "n_steps": 1024,
        "gae_lambda": 0.95,
        "gamma": 0.9,
        "n_epochs": 10,
        "learning_rate": 1e-3,
        "use_sde": True,
        "sde_sample_freq": 4,
    },
    "DQN-v0/Acrobot-v1": {
        "learning_rate": 6.3e-4,
        "batch_size": 128,
        "buffer_size": 50_000,
        "gamma": 0.99,
        "learning_starts": 0,
        "target_update_interval": 250,
        "train_freq": 4,
        "gradient_steps": -1,
        "exploration_fraction": 0.12,
        "exploration_final_eps": 0.1,
        "policy_kwargs": WIDE,
    },
    "PPO-v0/Acrobot-v1": {
        "n_envs": 16,
        "n_steps": 256,
        "gae_lambda": 0.94,
        "gamma": 0.99,
        "n_epochs": 4,
        "normalize": True,
    },
    "PPO-v0/LunarLander-v3": {
        "n_envs": 16,
        "n_steps": 1024,
        "batch_size": 64,
        "gae_lambda": 0.98,
        "gamma": 0.999,
        "n_epochs": 4,
        "ent_coef": 0.01,
    },
    "TD3-v0/LunarLanderContinuous-v3": {
        "gamma": 0.98,
        "buffer_size": 200_000,
        "learning_starts": 10_000,
        "noise": 0.1,
    },
    "SAC-v0/LunarLanderContinuous-v3": {
        "learning_rate": 7.3e-4,
        "gamma": 0.99,
        "tau": 0.01,
        "learning_starts": 10_000,
    },
    "TD3-v0/HalfCheetah-v5": {"learning_starts": 10_000, "learning_rate": 1e-3, "noise": 0.1},
    "SAC-v0/HalfCheetah-v5": {"learning_starts": 10_000},
}
ZOO["DQN-v0/LunarLander-v3"] = ZOO["DQN-v0/Acrobot-v1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tasks", nargs="+", choices=list(ZOO))
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of(JUDGED_SEEDS))
    parser.add_argument("--steps", type=int, help="fewer than the task has")
    options = parser.parse_args()
    for task in options.tasks:
        for seed in options.seeds:
            print(json.dumps(run(task, seed, options.steps or TASKS[task][1])), flush=True)


def run(task: str, seed: int, steps: int) -> dict[str, Any]:
    import gymnasium
    import numpy as np
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.utils import LinearSchedule
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    agent, env_id = task.split("/")
    interval = TASKS[task][1] // EVALUATIONS
    settings = dict(ZOO[task])
    for name, value in settings.items():
        if isinstance(value, str):
            settings[name] = LinearSchedule(float(value.split()[1]), 0.0, 1.0)
    noise, normalize = settings.pop("noise", None), settings.pop("normalize", False)
    env: Any = make_vec_env(env_id, settings.pop("n_envs", 1), seed=seed)
    if normalize:
        env = VecNormalize(env)
    if noise is not None:
        size = env.action_space.shape[0]
        settings["action_noise"] = NormalActionNoise(np.zeros(size), noise * np.ones(size))
    continuous = agent in ("DDPG-v0", "TD3-v0", "SAC-v0")
    if continuous:
        import sbx as peer
    else:
        import stable_baselines3 as peer
    model = getattr(peer, agent.removesuffix("-v0"))("MlpPolicy", env, seed=seed, **settings)
    played = gymnasium.make(env_id)
    curve: list[list[float]] = []

    def play(episode: int) -> float:
        observation, _ = played.reset(seed=10_000 * seed + episode)
        total, ended = 0.0, False
        while not ended:
            seen = env.normalize_obs(observation) if normalize else observation
            observation, reward, terminated, truncated, _ = played.step(
                model.predict(seen, deterministic=True)[0]
            )
            total, ended = total + float(reward), terminated or truncated
        return total

    class Judge(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps < (len(curve) + 1) * interval:
                return True
            mean = float(np.mean([play(10 * len(curve) + n) for n in range(10)]))
            curve.append([self.num_timesteps, mean])
            return True

    started = time.monotonic()
    model.learn(steps, callback=Judge())
    seconds = time.monotonic() - started
    return {
        "task": task,
        "by": "SBX" if continuous else "SB3",
        "seed": seed,
        "steps": steps,
        "seconds": seconds,
        "steps_per_s": steps / seconds,
        "curve": curve,
        "last": float(np.mean([play(1_000 + n) for n in range(100)])),
    }


if __name__ == "__main__":
    main()
