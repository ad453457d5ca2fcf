"""ExaCartPole-v1: CartPole whose every step does a piece of work over its group of ranks.

The smallest example of an environment that is an MPI program: replace ``parallel_pi`` by your solver.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from exarl.envs.base import Info
from exarl.types import Arrays


def parallel_pi(comm: Any, intervals: int) -> float:
    """Pi by the midpoint rule, each rank of ``comm`` taking every size-th interval."""
    rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
    x = (np.arange(rank, intervals, size) + 0.5) / intervals
    part = np.array(np.sum(4 / (1 + x * x)) / intervals)
    if size == 1:
        return float(part)
    total = np.empty_like(part)
    comm.Allreduce(part, total)
    return float(total)


class SavedCartPole(CartPoleEnv):
    """CartPole that can be saved while it runs."""

    def get_state(self) -> Arrays:
        """The cart's state; the episode's start came from its seed."""
        past = -1 if self.steps_beyond_terminated is None else self.steps_beyond_terminated
        return {"state": np.array(self.state, np.float64), "past_end": np.array(past)}

    def set_state(self, state: Arrays) -> None:
        self.state = tuple(state["state"].tolist())  # type: ignore[assignment]
        past = int(state["past_end"])
        self.steps_beyond_terminated = None if past < 0 else past  # type: ignore[assignment]


class ExaCartPole(SavedCartPole):
    """CartPole-v1 with ``intervals`` of an integral computed by all ranks of the group at each step.

    Observation, action, reward and termination are CartPole's. ``info["pi"]`` holds the integral.
    """

    def __init__(
        self, comm: Any = None, intervals: int = 1000, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode=render_mode)
        if intervals < 1:
            raise ValueError(f"intervals must be at least 1, not {intervals}")
        self._comm = comm
        self._intervals = intervals

    def step(self, action: int | np.ndarray) -> tuple[np.ndarray, float, bool, bool, Info]:
        observation, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        info["pi"] = parallel_pi(self._comm, self._intervals)
        return observation, float(reward), terminated, truncated, info
