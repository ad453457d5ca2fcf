"""A model that was learned from recorded episodes, as an environment (``exarl surrogate``).

Its spaces, the states it begins with and its limit are those of the episodes. Each step is predicted by
one member of the ensemble, drawn at random. What it predicts is kept within the range of what was
recorded, widened by a tenth: beyond that nothing is known.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import MessageError
from exarl.envs.base import Info, Space
from exarl.envs.functional import FunctionalEnv, Functions, integers, normal, split
from exarl.envs.space_json import space_from_json, space_to_json
from exarl.networks.dynamics import Dynamics, Scales
from exarl.records.directory import reason
from exarl.types import Arrays

FORMAT = 1
ARRAYS, ABOUT = "model.safetensors", "surrogate.json"
ROOM = 0.1
"""Part of the range of what was recorded by which predictions may exceed it."""


@dataclass(frozen=True)
class LearnedEnv:
    """A learned environment: networks, spaces, and what its episodes were like."""

    dynamics: Dynamics
    params: Arrays
    scaling: Scales
    starts: np.ndarray  # [M, observation], where episodes began
    range: np.ndarray  # [2, observation], the least and the largest of what was seen
    observation: spaces.Box
    action: spaces.Box | spaces.Discrete
    limit: int | None  # steps after which an episode is cut
    env_id: str  # the environment it is a model of
    steps: int  # it was learned from


class SurrogateState(NamedTuple):
    """The state of one episode."""

    observation: Any  # flat
    reward: Any  # of the step that led here
    terminated: Any
    time: Any


class SurrogateFunctions(Functions):
    """The functions of a surrogate; ``noise`` scales the deviation that its networks predict."""

    def __init__(self, surrogate: LearnedEnv, noise: float = 1.0, xp: ModuleType = np) -> None:
        super().__init__(xp)
        self.observation_space, self.action_space = surrogate.observation, surrogate.action
        self._dynamics, self._noise = surrogate.dynamics, noise
        low, high = surrogate.range
        room = ROOM * (high - low)
        flat = [np.ravel(b) for b in (surrogate.observation.low, surrogate.observation.high)]
        bounds = np.maximum(low - room, flat[0]), np.minimum(high + room, flat[1])
        self._low, self._high = (xp.asarray(b, np.float32) for b in bounds)
        self._starts = xp.asarray(surrogate.starts, np.float32)
        self._params = {name: xp.asarray(array) for name, array in surrogate.params.items()}
        self._scaling = Scales(*map(xp.asarray, surrogate.scaling))

    def initial(self, rng: Any, params: Any = None) -> SurrogateState:
        number = integers(rng, len(self._starts))
        return SurrogateState(self._starts[number], np.float32(0), np.bool_(False), np.int32(0))

    def transition(
        self, state: SurrogateState, action: Any, rng: Any, params: Any = None
    ) -> SurrogateState:
        xp, dynamics = self.xp, self._dynamics
        which, drawn = split(rng, 2)
        action = xp.asarray(action)
        if start := first_action(self.action_space):
            action = action - start
        inputs = dynamics.encoded(xp, state.observation[None], action[None])
        found = dynamics.apply(xp, self._params, self._scaling, inputs)
        member = integers(which, dynamics.members)
        noise = self._noise * normal(drawn, (dynamics.outputs,))
        scaled = found.mean[member, 0] + xp.exp(0.5 * found.log_var[member, 0]) * noise
        made = self._scaling.out_mean + self._scaling.out_std * scaled
        seen = xp.clip(state.observation + made[:-1], self._low, self._high)
        ends = found.ends[member, 0] > 0
        return SurrogateState(
            seen.astype(np.float32), made[-1].astype(np.float32), ends, state.time + 1
        )

    def observation(self, state: SurrogateState, rng: Any, params: Any = None) -> Any:
        space = self.observation_space
        return state.observation.reshape(space.shape).astype(space.dtype)

    def reward(
        self,
        state: SurrogateState,
        action: Any,
        next_state: SurrogateState,
        rng: Any,
        params: Any = None,
    ) -> Any:
        return next_state.reward

    def terminal(self, state: SurrogateState, rng: Any, params: Any = None) -> Any:
        return state.terminated

    def state_info(self, state: SurrogateState, params: Any = None) -> Info:
        return {}


class ExaSurrogate(FunctionalEnv):
    """The environment in the folder ``path``, which ``exarl surrogate`` wrote."""

    def __init__(self, path: str, noise: float = 1.0, render_mode: str | None = None) -> None:
        if noise < 0:
            raise ValueError(f"noise must be at least 0, not {noise}")
        self._surrogate, self._path = load_surrogate(path), path
        super().__init__(partial(SurrogateFunctions, self._surrogate, noise), render_mode)

    @property
    def max_episode_steps(self) -> int | None:
        """The length of the recorded episodes that a limit cut off."""
        return self._surrogate.limit

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        observation, reward, terminated, _, info = super().step(action)
        limit = self.max_episode_steps
        cut = limit is not None and int(self.state.time) >= limit and not terminated
        return observation, reward, terminated, cut, info

    def describe(self) -> dict[str, str]:
        made = self._surrogate
        return {"surrogate": f"of {made.env_id}, learned from {made.steps:,} steps ({self._path})"}


def save_surrogate(surrogate: LearnedEnv, folder: Path, about: dict[str, Any]) -> None:
    """Write a surrogate to a folder, with ``about`` beside what is needed to read it."""
    made = surrogate
    scaling = {f"scaling/{n}": a for n, a in made.scaling._asdict().items()}
    arrays = {**made.params, **scaling, "starts": made.starts, "range": made.range}
    whole = {n: np.ascontiguousarray(a, np.float32) for n, a in arrays.items()}
    (folder / ARRAYS).write_bytes(encode_arrays(whole))
    described = {
        "format": FORMAT,
        "env": made.env_id,
        "observation": space_to_json(made.observation),
        "action": space_to_json(made.action),
        "hidden": list(made.dynamics.hidden),
        "members": made.dynamics.members,
        "max_episode_steps": made.limit,
        "steps": made.steps,
        **about,
    }
    (folder / ABOUT).write_text(json.dumps(described, indent=2) + "\n")


def load_surrogate(path: str) -> LearnedEnv:
    """The surrogate in a folder; ValueError, in one line, where there is none."""
    folder = Path(path).expanduser()
    try:
        about = json.loads((folder / ABOUT).read_text())
        if about["format"] != FORMAT:
            raise ValueError(f"it has format {about['format']}; this version reads {FORMAT}")
        arrays = decode_arrays((folder / ARRAYS).read_bytes())
        seen, acted = spaces_of(about["observation"], about["action"])
        scaling = Scales(*(arrays.pop(f"scaling/{name}") for name in Scales._fields))
        starts, limits = arrays.pop("starts"), arrays.pop("range")
        dynamics = dynamics_for(seen, acted, about["members"], tuple(about["hidden"]))
        expected = dynamics.init(np.random.default_rng(0))
        shapes = [{n: a.shape for n, a in each.items()} for each in (arrays, expected)]
        if shapes[0] != shapes[1] or starts.shape[1:] != (dynamics.observation,):
            raise ValueError("its networks do not fit its spaces")
    except OSError as error:
        raise ValueError(f"no surrogate in {path}: {reason(error)}") from error
    except (MessageError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no surrogate: {error}") from error
    counted = about["max_episode_steps"], str(about["env"]), int(about["steps"])
    return LearnedEnv(dynamics, arrays, scaling, starts, limits, seen, acted, *counted)


def spaces_of(seen: Any, acted: Any) -> tuple[spaces.Box, spaces.Box | spaces.Discrete]:
    """The spaces of observations and actions that these data describe; ValueError for kinds of which no
    surrogate is learned."""
    observation, action = space_from_json(seen), space_from_json(acted)
    if not isinstance(observation, spaces.Box) or observation.dtype == np.uint8:
        raise ValueError(
            f"a surrogate is learned of observations that are numbers, not {observation}"
        )
    if not isinstance(action, spaces.Box | spaces.Discrete):
        raise ValueError(f"a surrogate is learned of Box and Discrete actions, not {action}")
    return observation, action


def first_action(action: Space) -> int:
    """The number of the first action of a Discrete space; 0 for a Box."""
    return int(action.start) if isinstance(action, spaces.Discrete) else 0


def dynamics_for(
    observation: spaces.Box,
    action: spaces.Box | spaces.Discrete,
    members: int,
    hidden: tuple[int, ...],
) -> Dynamics:
    """Networks for these spaces."""
    choices = int(action.n) if isinstance(action, spaces.Discrete) else None
    size = 1 if choices else math.prod(action.shape or ())
    return Dynamics(math.prod(observation.shape), size, members, hidden, choices)
