"""An environment that calls a parallel solver written in C at every step.

    mpicc -O2 -shared -fPIC -o libsolver.so solver.c
    mpiexec -n 5 python c_environment.py --total_steps 3000

Five ranks: one learner and two environments of two ranks each.
"""

import ctypes
from pathlib import Path

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import exarl


def load_solver():
    """The C function with its types; loaded after MPI has started, so that both use one library."""
    library = ctypes.CDLL(str(Path(__file__).with_name("libsolver.so")))
    library.parallel_pi.argtypes = [ctypes.c_int, ctypes.c_long]
    library.parallel_pi.restype = ctypes.c_double
    return library.parallel_pi


class ExaCSolver(CartPoleEnv):
    """CartPole that also computes pi in C at every step, on all ranks of its group."""

    def __init__(self, comm=None, intervals: int = 1000, render_mode: str | None = None):
        super().__init__(render_mode=render_mode)
        if comm is None:  # a run without MPI: the solver still needs a communicator
            from mpi4py import MPI

            comm = MPI.COMM_SELF
        self._comm = comm
        self._intervals = intervals
        self._solve = load_solver()

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        info["pi"] = self._solve(self._comm.py2f(), self._intervals)
        return observation, float(reward), terminated, truncated, info


gymnasium.register("ExaCSolver-v0", ExaCSolver, max_episode_steps=500)

if __name__ == "__main__":
    result = exarl.ExaLearner(env="ExaCSolver-v0", process_per_env=2).run()
    if result is not None:  # on the learner's rank
        reward = result.summary["last_reward_mean"]
        print(f"mean reward {reward:.2f}, run directory {result.run_dir}")  # noqa: T201
