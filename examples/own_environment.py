"""Your own environment in 30 lines, trained from Python.

python examples/own_environment.py
python examples/own_environment.py --total_steps 40000 --seed 2      (any parameter is a flag)
mpiexec -n 3 python examples/own_environment.py                      (one learner, two actors)
"""

import gymnasium
import numpy as np

import exarl


class Furnace(gymnasium.Env):
    """Hold a furnace at its set point by switching the heater; the room cools it all the time."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)  # heater off, half, full

    def __init__(self, set_point: float = 2.0, noise: float = 0.02):
        self.set_point = set_point
        self.noise = noise

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # creates self.np_random: use it for every random number
        self.temperature = self.np_random.uniform(0, 4)
        return self.observe(), {}

    def step(self, action):
        heating = 0.5 * action - 0.1 * self.temperature
        self.temperature += heating + self.noise * self.np_random.standard_normal()
        reward = -abs(self.temperature - self.set_point)
        return self.observe(), reward, False, False, {}  # ..., terminated, truncated, info

    def observe(self):
        return np.array([self.temperature, self.temperature - self.set_point], np.float32)


gymnasium.register("Furnace-v0", Furnace, max_episode_steps=100)

if __name__ == "__main__":
    result = exarl.ExaLearner(env="Furnace-v0").run()
    if result is not None:  # on the learner's rank; the others return None
        reward = result.summary["last_reward_mean"]
        print(f"mean reward {reward:.2f}, run directory {result.run_dir}")  # noqa: T201
