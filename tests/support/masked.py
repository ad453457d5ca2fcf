"""Environments in which some actions are forbidden now; one of these ends the episode, and is counted.

Of this module's own, since a module that names an ``action_mask`` costs its environments a reset.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.envs.functional import FunctionalEnv, Functions, integers


class Bandit(gymnasium.Env[Any, Any]):
    """Shows what each of its actions pays now and forbids some, most of all the one that pays most.

    ``info["action_mask"]`` says which. The best policy earns 1 per step, in episodes of 10 steps.
    """

    ACTIONS = 5
    observation_space: spaces.Space[Any] = spaces.Box(0, 1, (ACTIONS,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(ACTIONS)
    chosen, forbidden = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        self._draw()
        return self.seen(), self.info()

    def step(self, action: Any) -> Any:
        kind = type(self)
        kind.chosen += 1
        if not self.is_allowed(action):
            kind.forbidden += 1
            return self.seen(), -10.0, True, False, self.info()
        reward = self.pays(action)
        self.t += 1
        self._draw()
        if self.t == 10:
            self.mask[:] = False  # there is no next action
        return self.seen(), reward, self.t == 10, False, self.info()

    def _draw(self) -> None:
        self.pay = self.np_random.permutation(self.ACTIONS).astype(np.float32) / (self.ACTIONS - 1)
        self.mask = self.np_random.random(self.ACTIONS) < 0.5
        self.mask[self.pay.argmax()] = False
        self.mask[self.np_random.integers(self.ACTIONS)] = True

    def is_allowed(self, action: Any) -> bool:
        return bool(self.mask[action])

    def pays(self, action: Any) -> float:
        best = np.where(self.mask, self.pay, -1).argmax()
        return float(action == best)

    def seen(self) -> Any:
        return self.pay

    def info(self) -> dict[str, Any]:
        return {"action_mask": self.mask.astype(np.int8)}


class Telling(Bandit):
    """The mask comes from a method, as in sb3-contrib."""

    def info(self) -> dict[str, Any]:
        return {}

    def action_masks(self) -> np.ndarray:
        return self.mask


class Showing(Bandit):
    """The mask is a part of the observation, as in PettingZoo."""

    observation_space = spaces.Dict(
        observation=Bandit.observation_space, action_mask=spaces.Box(0, 1, (5,), np.int8)
    )

    def seen(self) -> Any:
        return {"observation": self.pay, "action_mask": self.mask.astype(np.int8)}

    def info(self) -> dict[str, Any]:
        return {}


class Pair(Bandit):
    """Two numbers are chosen at once, each with its own part of the mask."""

    action_space = spaces.MultiDiscrete([3, 2])

    def is_allowed(self, action: Any) -> bool:
        return bool(self.mask[action[0]] and self.mask[3 + action[1]])

    def pays(self, action: Any) -> float:
        best = np.where(self.mask, self.pay, -1)
        return 0.5 * float(action[0] == best[:3].argmax()) + 0.5 * float(
            action[1] == best[3:].argmax()
        )

    def _draw(self) -> None:
        super()._draw()
        self.mask[self.np_random.integers(3)] = True
        self.mask[3 + self.np_random.integers(2)] = True


class Closed(Telling):
    """Forbids everything in its third step."""

    def action_masks(self) -> np.ndarray:
        return self.mask & (self.t != 2)


class Gate(NamedTuple):
    """Where the open gates are."""

    open: Any


class Gates(Functions):
    """One of four gates is closed, and going there costs 100; of the open ones the last pays 1."""

    observation_space = spaces.Box(0, 1, (4,), np.float32)
    action_space = spaces.Discrete(4)

    def initial(self, rng: Any, params: Any = None) -> Gate:
        return Gate(self.xp.arange(4) != integers(rng, 4))

    def transition(self, state: Gate, action: Any, rng: Any, params: Any = None) -> Gate:
        return self.initial(rng)

    def observation(self, state: Gate, rng: Any, params: Any = None) -> Any:
        return self.xp.asarray(state.open, self.xp.float32)

    def reward(
        self, state: Gate, action: Any, next_state: Gate, rng: Any, params: Any = None
    ) -> Any:
        last = self.xp.where(state.open[3], 3, 2)
        return self.xp.where(state.open[action], 1.0 * (action == last), -100.0)

    def terminal(self, state: Gate, rng: Any, params: Any = None) -> Any:
        return self.xp.asarray(False)

    def action_masks(self, state: Gate) -> Any:
        return state.open


class MaskedGates(FunctionalEnv):
    """The Gymnasium form of ``Gates``."""

    def __init__(self) -> None:
        super().__init__(Gates)


gymnasium.register("Gates-v0", "tests.support.masked:MaskedGates", max_episode_steps=10)
gymnasium.register("Bandit-v0", "tests.support.masked:Bandit")
