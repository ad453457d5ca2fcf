"""Simulations of several agents with PettingZoo's parallel interface, without PettingZoo."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.types import Arrays

AGENTS = ("left", "middle", "right")


class Rope:
    """Three walkers on one rope: each sees itself and the middle of all, moves by its action and the
    pull of the others, and pays its distance from 0. An episode has 5 to 12 steps, by its seed."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.places = self.random.uniform(-1, 1, 3)
        self.left = int(self.random.integers(5, 13))
        return self.seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert [*actions] == [*AGENTS]
        moves = np.array([2 * actions[agent] - 1 for agent in AGENTS])
        self.places = self.places + 0.1 * moves + 0.1 * (self.places.mean() - self.places)
        self.left -= 1
        over = self.over()
        self.agents = [agent for agent in AGENTS if not over[agent]]
        rewards = {agent: -abs(float(x)) for agent, x in zip(AGENTS, self.places, strict=True)}
        never, infos = dict.fromkeys(AGENTS, False), {a: {"move": m} for a, m in actions.items()}
        return self.seen(), rewards, over, never, infos

    def over(self) -> dict[str, bool]:
        return dict.fromkeys(AGENTS, self.left == 0)

    def seen(self) -> dict[str, np.ndarray]:
        middle = self.places.mean()
        rows = [np.array([x, middle, i], np.float32) for i, x in enumerate(self.places)]
        return dict(zip(AGENTS, rows, strict=True))

    def render(self) -> None:
        """Nothing to see."""

    def close(self) -> None:
        self.closed = True


class Kept(Rope):
    """The same; it also gives its state."""

    def get_state(self) -> Arrays:
        return {"places": self.places.copy(), "left": np.array(self.left)}

    def set_state(self, state: Arrays) -> None:
        self.places, self.left = state["places"].copy(), int(state["left"])


class Reusing(Rope):
    """The same, with observations that are always the same arrays, overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = {agent: np.zeros(3, np.float32) for agent in AGENTS}

    def seen(self) -> dict[str, np.ndarray]:
        for agent, seen in super().seen().items():
            self.rows[agent][:] = seen
        return self.rows


class Early(Rope):
    """One agent ends before the others."""

    def over(self) -> dict[str, bool]:
        return {**super().over(), "middle": self.left <= 2}


class Late(Rope):
    """One agent is not there from the beginning."""

    def seen(self) -> dict[str, np.ndarray]:
        return {agent: seen for agent, seen in super().seen().items() if agent != "right"}


class Unequal(Rope):
    """Agents with different spaces."""

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3 if agent == "right" else 2)


class Turns(Rope):
    """The other interface of PettingZoo."""

    def agent_iter(self) -> Any:
        return iter(AGENTS)


class Masked(Rope):
    """Only moves towards 0 are allowed."""

    def observation_space(self, agent: str) -> Any:
        own = super().observation_space(agent)
        return spaces.Dict({"observation": own, "action_mask": spaces.MultiBinary(2)})

    def seen(self) -> Any:
        return {
            agent: {"observation": seen, "action_mask": np.array([seen[0] > 0, seen[0] <= 0], "i1")}
            for agent, seen in super().seen().items()
        }


def make_rope(**parameters: Any) -> Rope:
    return Rope(**parameters)


for kind in (Kept, Reusing, Early, Late, Unequal, Turns, Masked):
    gymnasium.register(f"{kind.__name__}Rope-v0", kind)
gymnasium.register("Rope-v0", make_rope)
