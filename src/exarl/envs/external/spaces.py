"""Spaces as the protocol knows them: Box, Discrete and MultiDiscrete, two arrays each.

Others are brought to one of these at the environment's side: MultiBinary becomes MultiDiscrete, what
Gymnasium can flatten becomes a Box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Space
from exarl.envs.external.protocol import TYPES, Kind, Message, ProtocolError
from exarl.envs.layout import Flattened, flattener
from exarl.envs.space_json import space_from_json, space_to_json
from exarl.envs.structured import CHOSEN, JoinedActions

BOX, DISCRETE, MULTI_DISCRETE = 1, 2, 3


@dataclass(frozen=True)
class Port:
    """A space on the wire: what travels, and how the environment's own values become that."""

    space: Space
    arrange: Callable[[object], np.ndarray]  # the environment's value -> array of any type
    receive: Callable[[np.ndarray], Any]  # array -> the environment's value

    def send(self, value: object) -> np.ndarray:
        """The environment's value as it travels."""
        dtype, shape = self._form
        return np.asarray(self.arrange(value), dtype).reshape(shape)

    @cached_property
    def _form(self) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
        return wire_dtype(self.space), self.space.shape or ()


def port(space: Space) -> Port:
    """How values of ``space`` travel; ValueError when they cannot."""
    if isinstance(space, spaces.Box):
        own, dtype = np.dtype(space.dtype), _travelling(np.dtype(space.dtype))
        box = spaces.Box(space.low.astype(dtype), space.high.astype(dtype), space.shape, dtype.type)  # type: ignore[arg-type]
        return Port(box, np.asarray, lambda array: array.astype(own))
    if isinstance(space, spaces.Discrete):
        return Port(space, np.asarray, int)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        kind = np.dtype(space.dtype)
        many = space if isinstance(space, spaces.MultiDiscrete) else _of_binary(space)
        return Port(many, np.asarray, lambda array: array.astype(kind))
    if not space.is_np_flattenable:
        raise ValueError(f"{space} cannot travel")
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    travelling = port(flat)
    return Port(
        travelling.space,
        lambda value: np.asarray(spaces.flatten(space, value)),
        lambda array: spaces.unflatten(space, travelling.receive(array)),
    )


def float_port(space: Space) -> Port:
    """How observations of ``space`` travel to an agent, which sees float32 unless they are bytes.

    A Box keeps its shape, and its type if that can travel; anything else is flattened. ValueError
    where that is impossible.
    """
    if isinstance(space, spaces.Box):
        if np.dtype(space.dtype) in TYPES.values():
            return port(space)
        box = spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), space.shape)
        return Port(box, np.asarray, np.asarray)
    flatten = flattener(space)
    flat = spaces.Box(-np.inf, np.inf, (spaces.flatdim(space),), np.float32)
    return Port(flat, flatten, np.asarray)


def original(space: Space) -> dict[str, Any] | None:
    """A space of several parts, of which values travel flattened, as plain data; None for others."""
    return space_to_json(space) if isinstance(space, spaces.Dict | spaces.Tuple) else None


def as_said(space: Space, data: Mapping[str, Any] | None) -> Space:
    """A space that has travelled, as the other side's ``original`` describes it."""
    if data is None or not isinstance(space, spaces.Box):
        return space
    try:
        own = space_from_json(data)
        if spaces.flatdim(own) == np.prod(space.shape):
            return Flattened(space, own)
    except (ValueError, TypeError, KeyError) as error:
        raise ProtocolError(f"SPACES with a description that is none: {error}") from error
    raise ProtocolError("SPACES describes observations of another size")


def actions_as_said(space: Space, data: Mapping[str, Any] | None) -> Space:
    """The same for a space of actions, which travel as ``JoinedActions`` has them."""
    if data is None or not isinstance(space, spaces.Box):
        return space
    try:
        own = space_from_json(data)
        joined = JoinedActions.of(own)
    except (ValueError, TypeError, KeyError) as error:
        raise ProtocolError(f"SPACES with a description that is none: {error}") from error
    if joined is None or joined.box.shape != space.shape:
        raise ProtocolError("SPACES describes actions of another size")
    return Flattened(space, own)


def action_port(space: Space) -> Port:
    """Like ``port``, but a Dict or a Tuple is the vector of its values, as ``JoinedActions`` has it."""
    joined = JoinedActions.of(space)
    if joined is not None:
        return Port(joined.box, joined.together, joined.apart())
    if not isinstance(space, (spaces.Box, *CHOSEN)):
        raise ValueError(f"actions of {space} cannot travel")
    return port(space)


def spaces_message(observation: Space, action: Space, session: int = 0) -> Message:
    """SPACES: two kinds, then two arrays for each space."""
    kinds, arrays = [], []
    for space in (observation, action):
        kind, first, second = _describe(space)
        kinds.append(kind)
        arrays += [first, second]
    return Message(Kind.SPACES, (np.array(kinds, np.uint8), *arrays), session)


def read_spaces(message: Message) -> tuple[Space, Space]:
    """The observation space and the action space in a SPACES."""
    if len(message.arrays) < 5 or message.arrays[0].shape != (2,):
        raise ProtocolError("SPACES holds two kinds, and two arrays for each space")
    kinds, *arrays = message.arrays[:5]
    observation = _read(int(kinds[0]), arrays[0], arrays[1])
    return observation, _read(int(kinds[1]), arrays[2], arrays[3])


def wire_dtype(space: Space) -> np.dtype[np.generic]:
    """The type in which values of ``space``, a space of the protocol, travel."""
    return np.dtype(space.dtype if isinstance(space, spaces.Box) else np.int64)


def check_value(space: Space, array: np.ndarray, what: str) -> None:
    """ProtocolError unless ``array`` has the shape and dtype of ``space`` and may be its value.

    Numbers of a Box may be out of its bounds: many environments cut them themselves.
    """
    if array.shape != (space.shape or ()) or array.dtype != wire_dtype(space):
        raise ProtocolError(
            f"{what} is an array {array.shape} of {array.dtype}, its space says {space}"
        )
    if isinstance(space, spaces.Box):
        return
    value = np.int64(array) if isinstance(space, spaces.Discrete) else array
    if not space.contains(value):
        raise ProtocolError(f"{what} {array} is not in {space}")


def _of_binary(space: spaces.MultiBinary) -> spaces.MultiDiscrete:
    return spaces.MultiDiscrete(np.full(space.shape, 2))


def _travelling(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """The type in which numbers of ``dtype`` travel without loss."""
    if dtype in TYPES.values():
        return dtype
    if dtype.kind == "f" and dtype.itemsize < 4:
        return np.dtype(np.float32)
    if dtype.kind in "iu" and dtype.itemsize < 8:
        return np.dtype(np.int64)
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    raise ValueError(f"numbers of type {dtype} cannot travel")


def _describe(space: Space) -> tuple[int, np.ndarray, np.ndarray]:
    if isinstance(space, spaces.Box):
        return BOX, space.low, space.high
    if isinstance(space, spaces.Discrete):
        return DISCRETE, np.array(space.n, np.int64), np.array(space.start, np.int64)
    assert isinstance(space, spaces.MultiDiscrete)
    return MULTI_DISCRETE, space.nvec.astype(np.int64), space.start.astype(np.int64)


def _read(kind: int, first: np.ndarray, second: np.ndarray) -> Space:
    if first.shape != second.shape or first.dtype != second.dtype:
        raise ProtocolError("the two arrays of a space have one shape and one type")
    if kind == BOX:
        if not (first <= second).all():  # NaN as well
            raise ProtocolError("a Box has low <= high everywhere")
        return spaces.Box(first.copy(), second.copy(), first.shape, first.dtype.type)
    if first.dtype != np.int64 or not first.size or first.min() < 1:
        raise ProtocolError("a discrete space counts at least one value, in int64")
    if kind == DISCRETE and first.shape == ():
        return spaces.Discrete(int(first), start=int(second))
    if kind == MULTI_DISCRETE:
        return spaces.MultiDiscrete(first.copy(), start=second.copy())
    raise ProtocolError(f"no space has kind {kind} and shape {first.shape}")
