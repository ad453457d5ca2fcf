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


class Visitors(Rope):
    """Walkers that come and go as the seed says; at least one is there until the end. What an agent
    sees tells how long it has been there. It is paid 1 for each step, more as it stays on."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed)
        self.plan = self.random.random((self.left, 3)) < 0.6
        self.plan[np.arange(self.left), self.random.integers(3, size=self.left)] = True
        self.begin()
        self.agents = [a for a, here in zip(AGENTS, self.plan[0], strict=True) if here]
        return self.seen_by(self.agents), {}

    def begin(self) -> None:
        self.now, self.stay = 0, np.zeros(3, int)

    def step(self, actions: dict[str, int]) -> Any:
        here = self.plan[self.now]
        assert {*actions} == {a for a, there in zip(AGENTS, here, strict=True) if there}
        for place in np.flatnonzero(here):
            self.places[place] += 0.1 * (2 * actions[AGENTS[place]] - 1)
        self.stay = np.where(here, self.stay + 1, 0)
        self.now += 1
        following = self.plan[self.now] if self.now < len(self.plan) else np.zeros(3, bool)
        gone = {a: bool(not n) for a, h, n in zip(AGENTS, here, following, strict=True) if h}
        self.agents = [a for a, there in zip(AGENTS, following, strict=True) if there]
        seen = self.seen_by([*dict.fromkeys([*gone, *self.agents])])
        rewards = {a: float(self.stay[AGENTS.index(a)]) for a in gone}
        return seen, rewards, gone, dict.fromkeys(gone, False), {a: {"move": 1.0} for a in gone}

    def seen_by(self, agents: list[str]) -> dict[str, np.ndarray]:
        rows = zip(AGENTS, self.places, self.stay, strict=True)
        return {a: np.array([x, n, self.now], np.float32) for a, x, n in rows if a in agents}


class KeptVisitors(Visitors):
    """The same; it also gives its state."""

    def get_state(self) -> Arrays:
        kept = ("places", "plan", "stay")
        return {n: getattr(self, n).copy() for n in kept} | {"now": np.array(self.now)}

    def set_state(self, state: Arrays) -> None:
        self.places, self.plan = state["places"].copy(), state["plan"].copy()
        self.stay, self.now = state["stay"].copy(), int(state["now"])


class Chase(Rope):
    """A cat that sees two mice, and mice that see themselves, the cat and a flag; each mouse moves by
    a number, the cat by a choice. Mice are paid for distance, the cat for being near."""

    names = ("cat", "mouse_0", "mouse_1")

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = list(self.names)

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-np.inf, np.inf, (3 if agent == "cat" else 4,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3) if agent == "cat" else spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.random = np.random.default_rng(seed)
        self.places, self.left = self.random.uniform(-1, 1, 3), int(self.random.integers(5, 13))
        return self.seen(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        assert type(actions["cat"]) is int and actions["mouse_1"].shape == (2,)
        moves = [actions["cat"] - 1, *(float(actions[name][0]) for name in self.names[1:])]
        self.places = (self.places + 0.1 * np.array(moves)).clip(-2, 2)
        self.left -= 1
        apart = np.abs(self.places[1:] - self.places[0])
        rewards = dict(zip(self.names, [-float(apart.min()), *apart.tolist()], strict=True))
        return (
            self.seen(),
            rewards,
            dict.fromkeys(self.names, self.left == 0),
            dict.fromkeys(self.names, False),
            {},
        )

    def seen(self) -> dict[str, np.ndarray]:
        cat, *mice = self.places
        rows = [[cat, *mice], *([mouse, cat, 1, 0] for mouse in mice)]
        return {n: np.array(row, np.float32) for n, row in zip(self.names, rows, strict=True)}


def make_rope(**parameters: Any) -> Rope:
    return Rope(**parameters)


for kind in (Kept, Reusing, Early, Late, Unequal, Turns, Masked):
    gymnasium.register(f"{kind.__name__}Rope-v0", kind)
gymnasium.register("Chase-v0", Chase)
gymnasium.register("Visitors-v0", Visitors)
gymnasium.register("KeptVisitors-v0", KeptVisitors)
gymnasium.register("Rope-v0", make_rope)
