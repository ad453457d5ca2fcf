"""An environment whose actions are corrections to those of a controller."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Env, ExaEnv, Info, Space, can_snapshot, described
from exarl.envs.taken import TAKEN
from exarl.errors import ConfigError
from exarl.types import Arrays

_STATE, _BASE = "controller/", "controller_action"


@dataclass(frozen=True)
class Correction:
    """How a controller's action and a policy's are joined: action = clip(controller + scale * policy).

    The policy's action is in [-1, 1], and ``scale`` is in halves of the range of actions, or in their
    own unit where they have no bounds. With ``observes`` the policy sees the controller's action, in
    the same measure, behind the observation.
    """

    low: np.ndarray
    high: np.ndarray
    scale: float
    observes: bool = False

    @classmethod
    def of(cls, seen: Space, acted: Space, scale: float, observes: bool) -> Correction:
        """ConfigError where actions are no array of numbers, or observations cannot be extended."""
        if not isinstance(acted, spaces.Box) or acted.dtype.kind != "f":
            raise ConfigError(f"residual corrects continuous actions (Box of floats), not {acted}")
        flat = isinstance(seen, spaces.Box) and len(seen.shape) == 1 and seen.dtype.kind == "f"
        if observes and not flat:
            raise ConfigError(f"residual_observes needs observations that are a vector, not {seen}")
        return cls(acted.low.astype(float), acted.high.astype(float), scale, observes)

    @property
    def _bounded(self) -> np.ndarray:
        return np.isfinite(self.low) & np.isfinite(self.high)

    @property
    def _half(self) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(self._bounded, (self.high - self.low) / 2, 1.0)

    def spaces(self, seen: Space) -> tuple[Space, Space]:
        """What a policy sees and does in an environment with observations ``seen``."""
        shape = self.low.shape
        if self.observes:
            assert isinstance(seen, spaces.Box)
            ends = np.full(self.low.size, np.inf)
            low, high = np.append(seen.low, -ends), np.append(seen.high, ends)
            seen = spaces.Box(
                low.astype(seen.dtype), high.astype(seen.dtype), dtype=seen.dtype.type
            )
        return seen, spaces.Box(-1.0, 1.0, shape, np.float32)

    def seen(self, observation: Any, base: np.ndarray) -> Any:
        """What the policy sees."""
        if not self.observes:
            return observation
        with np.errstate(invalid="ignore"):
            middle = np.where(self._bounded, (self.low + self.high) / 2, 0.0)
        told = (base - middle) / self._half
        return np.append(observation, told).astype(np.asarray(observation).dtype)

    def action(self, base: np.ndarray, chosen: Any) -> np.ndarray:
        """The action that the environment takes."""
        whole = base + self.scale * self._half * np.asarray(chosen, float).reshape(base.shape)
        clipped: np.ndarray = whole.clip(self.low, self.high)
        return clipped

    def chosen(self, base: np.ndarray, action: Any) -> np.ndarray:
        """The correction that leads to an action."""
        found = (np.asarray(action, float).reshape(base.shape) - base) / (self.scale * self._half)
        return found.astype(np.float32)


class Controlled:
    """A controller as it acts in one environment. ``made`` is an object with ``act(observation)``, and
    perhaps ``reset()``, or a function of the observation."""

    def __init__(self, made: Any, shape: tuple[int, ...]) -> None:
        self.made, self._shape = made, shape
        self._act: Callable[[Any], Any] = getattr(made, "act", made)
        self._reset: Callable[[], object] = getattr(made, "reset", lambda: None)
        if not callable(self._act):
            raise ConfigError(
                "the controller of residual has no act(observation), nor is it called"
            )

    def reset(self) -> None:
        """An episode begins."""
        self._reset()

    def act(self, observation: Any) -> np.ndarray:
        """The action in the units of the environment. ValueError where it is none."""
        action = np.asarray(self._act(observation), float)
        if action.size != np.prod(self._shape, dtype=int) or not np.isfinite(action).all():
            raise ValueError(
                f"the controller gave {action.tolist()}, no action {list(self._shape)}"
            )
        return action.reshape(self._shape)

    @property
    def storable(self) -> bool:
        """Whether ``state`` is all that it remembers: it says so, or remembers nothing."""
        return hasattr(self.made, "get_state") or not hasattr(self.made, "reset")

    def state(self) -> Arrays:
        """What it remembers of the episode, as named arrays."""
        return dict(self.made.get_state()) if hasattr(self.made, "get_state") else {}

    def restore(self, state: Arrays) -> None:
        """Take over what ``state`` gave."""
        if hasattr(self.made, "set_state"):
            self.made.set_state(state)


def controlled(source: Any, env: Env | None, shape: tuple[int, ...]) -> Controlled:
    """A controller of its own for one environment, of a class or of an object, which is copied."""
    if isinstance(source, type):
        wants = env is not None and "env" in inspect.signature(source).parameters
        return Controlled(source(env=env) if wants else source(), shape)
    plain = inspect.isfunction(source) or inspect.isbuiltin(source)
    return Controlled(source if plain else copy.deepcopy(source), shape)


class Residual(ExaEnv):
    """``env`` under a controller, to be corrected by the actions that this environment takes.

    A replay has the correction as the action: the controller belongs to the environment. Its state is
    part of that of the environment where both can be stored (``get_state``); otherwise an episode is
    played again.
    """

    def __init__(self, env: Env, source: Any, scale: float, observes: bool) -> None:
        self.env, self.metadata, self.render_mode = env, env.metadata, env.render_mode
        self.base_spaces = env.observation_space, env.action_space
        self._correction = Correction.of(*self.base_spaces, scale, observes)
        self.observation_space, self.action_space = self._correction.spaces(env.observation_space)
        self._controller = controlled(source, env, self._correction.low.shape)
        self._base = np.zeros(self._correction.low.shape)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._controller.reset()
        return self._seen(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        base, kind = self._base, self.base_spaces[1].dtype
        whole = self._correction.action(base, action).astype(kind)
        observation, reward, terminated, truncated, info = self.env.step(whole)
        if info and TAKEN in info:
            info = {**info, TAKEN: self._correction.chosen(base, info[TAKEN])}
        return self._seen(observation), reward, terminated, truncated, info

    def _seen(self, observation: Any) -> Any:
        self._base = self._controller.act(observation)
        return self._correction.seen(observation, self._base)

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def describe(self) -> dict[str, str]:
        return described(self.env)

    @property
    def has_state(self) -> bool:
        return can_snapshot(self.env) and self._controller.storable

    def get_state(self) -> Arrays:
        bare: Any = self.env.unwrapped
        kept = {f"{_STATE}{name}": array for name, array in self._controller.state().items()}
        return {**bare.get_state(), **kept, _BASE: self._base.copy()}

    def set_state(self, state: Arrays) -> None:
        bare: Any = self.env.unwrapped
        kept = {n: a for n, a in state.items() if n != _BASE and not n.startswith(_STATE)}
        bare.set_state(kept)
        self._base = np.array(state[_BASE])
        self._controller.restore(
            {n.removeprefix(_STATE): a for n, a in state.items() if n.startswith(_STATE)}
        )
