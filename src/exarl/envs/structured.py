"""Dict and Tuple actions as one vector, and back: first the numbers of all Boxes, then the choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Space
from exarl.envs.layout import Flattened, parts_of
from exarl.types import Namespace

CHOSEN = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class JoinedActions:
    """The parts of a space of actions, each with its place in the vector of their values.

    ``numbers`` are the vector's first values, of all Boxes; ``factors`` the rest. One may be missing.
    ``flat`` says that the environment takes the vector as it is, since its actions travel.
    """

    space: Space
    places: tuple[tuple[Space, slice], ...]  # in the order of the parts
    numbers: spaces.Box | None
    factors: spaces.MultiDiscrete | None
    flat: bool = False

    @classmethod
    def of(cls, space: Space) -> JoinedActions | None:
        """That of a Dict or Tuple, or of one that travels as a vector; None for a space without parts.

        ValueError that names a part which can be no part of an action.
        """
        flat = isinstance(space, Flattened)
        own = space.original if isinstance(space, Flattened) else space
        if not isinstance(own, spaces.Dict | spaces.Tuple):
            return None
        parts = list(parts_of(own))
        for path, part in parts:
            if not isinstance(part, (spaces.Box, *CHOSEN)):
                where = "/".join(map(str, path))
                raise ValueError(f"their part {where} is a {type(part).__name__}")
        boxes = [part for _, part in parts if isinstance(part, spaces.Box)]
        chosen = [part for _, part in parts if isinstance(part, CHOSEN)]
        if not boxes and not chosen:
            raise ValueError("they have no parts")
        numbers, factors = _box(boxes) if boxes else None, _factors(chosen) if chosen else None
        ends = {True: 0, False: 0 if numbers is None else numbers.shape[0]}
        places = []
        for _, part in parts:
            kind = isinstance(part, spaces.Box)
            start, ends[kind] = ends[kind], ends[kind] + _size(part)
            places.append((part, slice(start, ends[kind])))
        return cls(own, tuple(places), numbers, factors, flat)

    @property
    def plain(self) -> Space | None:
        """The one space without parts that is as good; None where numbers and choices are mixed."""
        if self.numbers is not None and self.factors is not None:
            return None
        return self.factors if self.numbers is None else self.numbers

    @property
    def box(self) -> spaces.Box:
        """The vector's bounds, of the type in which it travels."""
        lows, highs = [], []
        if self.numbers is not None:
            lows.append(self.numbers.low)
            highs.append(self.numbers.high)
        if self.factors is not None:
            lows.append(self.factors.start)
            highs.append(self.factors.start + self.factors.nvec - 1)
        low, high = np.concatenate(lows), np.concatenate(highs)
        return spaces.Box(low.astype("f8"), high.astype("f8"), low.shape, np.float64)

    def apart(self, xp: Namespace = np) -> Convert:
        """The environment's action for a vector of values."""
        if self.flat:
            return lambda vector: vector
        takes = [_taken(part, place, xp) for part, place in self.places]
        return lambda vector: _filled(self.space, (take(vector) for take in takes))

    def together(self, action: Any) -> np.ndarray:
        """The vector of values of the environment's action; the inverse of ``apart``."""
        if self.flat:
            return np.asarray(action, np.float64)
        vector = np.empty(self.places_end)
        for (_, place), (path, part) in zip(self.places, parts_of(self.space), strict=True):
            value = action
            for key in path:
                value = value[key]
            vector[place] = np.asarray(value, np.float64).reshape(_size(part))
        return vector

    @property
    def places_end(self) -> int:
        """How many values the vector has."""
        return max(place.stop for _, place in self.places)


def unflattened(space: Space) -> Space:
    """The environment's own space, where ``space`` may be how its values travel."""
    return space.original if isinstance(space, Flattened) else space


def _filled(space: Space, values: Iterator[Any]) -> Any:
    """An action of ``space`` with these values of its parts."""
    if isinstance(space, spaces.Dict):
        return {key: _filled(part, values) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_filled(part, values) for part in space.spaces)
    return next(values)


def _taken(part: Space, place: slice, xp: Namespace) -> Convert:
    """What takes the value of a part out of the vector, in the part's type."""
    if isinstance(part, spaces.Discrete):
        at = place.start
        if xp is np:
            return lambda vector: int(np.rint(vector[at]))
        return lambda vector: xp.rint(vector[at]).astype(int)
    shape, dtype = part.shape, dtype_over(xp, np.dtype(part.dtype))
    if np.issubdtype(dtype, np.floating):
        return lambda vector: vector[place].reshape(shape).astype(dtype)
    return lambda vector: xp.rint(vector[place]).reshape(shape).astype(dtype)


def dtype_over(xp: Namespace, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that numbers of ``dtype`` have over ``xp``: on a device, of four bytes at most."""
    return dtype if xp is np or dtype.itemsize < 8 else np.dtype(f"{dtype.kind}4")


def _size(part: Space) -> int:
    return 1 if isinstance(part, spaces.Discrete) else int(np.prod(part.shape or ()))


def _box(boxes: list[spaces.Box]) -> spaces.Box:
    dtype = np.result_type(*(box.dtype for box in boxes))
    low, high = (
        np.concatenate([np.ravel(getattr(box, end)) for box in boxes]).astype(dtype)
        for end in ("low", "high")
    )
    return spaces.Box(low, high, low.shape, dtype.type)


def _factors(chosen: list[Any]) -> spaces.MultiDiscrete:
    counts, starts = [], []
    for part in chosen:
        size = _size(part)
        if isinstance(part, spaces.MultiBinary):
            counts.append(np.full(size, 2))
            starts.append(np.zeros(size, int))
        else:
            count = part.n if isinstance(part, spaces.Discrete) else part.nvec
            counts.append(np.ravel(count))
            starts.append(np.ravel(part.start))
    return spaces.MultiDiscrete(np.concatenate(counts), start=np.concatenate(starts))
