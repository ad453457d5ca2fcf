"""Observations of several parts as one vector: where each part stands in it, and how it gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Space
from exarl.envs.masks import KEY, SEEN, own_space
from exarl.types import ArraySpec, ObservationPart, PartKind

IMAGE_SIDE = 8
"""The least height and width of an image without an axis for its channels."""

Encode = Callable[[Any], Any]


class Flattened(spaces.Box):
    """A Box that holds the values of another space, flattened."""

    def __init__(self, box: spaces.Box, original: Space) -> None:
        super().__init__(box.low, box.high, box.shape, box.dtype.type)  # type: ignore[arg-type]
        self.original = original


@dataclass(frozen=True)
class Leaf:
    """A part that has no parts: the keys that lead to it, and where it stands in the vector."""

    path: tuple[str | int, ...]
    space: Space
    place: slice

    @property
    def name(self) -> str:
        """Its keys, ``camera/left``."""
        return "/".join(map(str, self.path))

    @property
    def kind(self) -> PartKind:
        """How it is seen."""
        space = self.space
        if self.path == (KEY,):
            return "mask"
        if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
            return "numbers"
        flat = len(space.shape) == 2 and min(space.shape) >= IMAGE_SIDE
        return "image" if flat or len(space.shape) == 3 else "numbers"


@dataclass(frozen=True)
class VectorLayout:
    """A vector of the parts of a space, in the order in which Gymnasium flattens them."""

    leaves: tuple[Leaf, ...]

    @classmethod
    def of(cls, space: Space) -> VectorLayout:
        """The layout of a Dict or a Tuple; ValueError that names a part which is not of numbers."""
        leaves: list[Leaf] = []
        start = 0
        for path, part in parts_of(space):
            if not _is_numbers(part):
                kind, where = type(part).__name__, "/".join(map(str, path))
                drop = f"leave it out with --drop_observations {where}, or " if path else ""
                raise ValueError(
                    f"{where or 'what is seen'} is a {kind}, which is no array of numbers: {drop}put a"
                    " wrapper around it"
                )
            size = spaces.flatdim(part)
            leaves.append(Leaf(path, part, slice(start, start + size)))
            start += size
        return cls(tuple(leaves))

    @property
    def parts(self) -> tuple[ObservationPart, ...]:
        """The parts, if some are not seen as the others are; else none."""
        found = tuple(
            ObservationPart(leaf.name, leaf.kind, leaf.place.start, _shape(leaf))
            for leaf in self.leaves
        )
        return () if {part.kind for part in found} == {"numbers"} else found

    @property
    def spec(self) -> ArraySpec:
        """The vector: of bytes where it has nothing but images and a mask."""
        bytes_only = all(leaf.kind != "numbers" for leaf in self.leaves)
        size = sum(leaf.place.stop - leaf.place.start for leaf in self.leaves)
        return ArraySpec((size,), "uint8" if bytes_only else "float32")

    def encoder(self) -> Encode:
        """The vector of an observation. Bytes of images beside other numbers are divided by 255."""
        dtype = self.spec.dtype
        plan = [(leaf, *_taken(leaf, dtype)) for leaf in self.leaves]

        def encode(observation: Any) -> np.ndarray:
            arrays = []
            for leaf, shape, arrange in plan:
                value = observation
                for key in leaf.path:
                    value = value[key]
                array = np.asarray(value if arrange is None else arrange(value))
                if array.shape != shape:
                    raise ValueError(f"{leaf.name} has shape {array.shape}, not {shape}")
                arrays.append(array if array.ndim == 1 else array.reshape(-1))
            return np.concatenate(arrays, dtype=dtype, casting="unsafe")

        return encode

    def flat_encoder(self) -> Encode:
        """The same for an observation that comes flattened."""
        images = [leaf.place for leaf in self.leaves if leaf.kind == "image"]
        if self.spec.dtype == "uint8":
            return lambda flat: np.asarray(flat).astype(np.uint8)
        if not images or not self.parts:
            return lambda flat: flat

        def encode(flat: Any) -> np.ndarray:
            vector = np.array(flat, np.float32)
            for place in images:
                vector[place] /= 255
            return vector

        return encode


def apart(space: Space, raw: Any) -> tuple[Any, Any]:
    """An observation as the environment itself gave it, and the mask of actions, if there is one."""
    own: Any = space
    if isinstance(own, Flattened):
        own, raw = own.original, spaces.unflatten(own.original, raw)
    mask = raw.get(KEY) if isinstance(raw, Mapping) else None
    return (raw if own_space(own) is own else raw[SEEN]), mask


def flattener(space: Space) -> Encode:
    """Observations of a Dict or a Tuple as Gymnasium flattens them, in float32."""
    layout = VectorLayout.of(space)
    plain = VectorLayout(tuple(_Plain(leaf.path, leaf.space, leaf.place) for leaf in layout.leaves))
    return plain.encoder()


class _Plain(Leaf):
    """A part that is seen as numbers, whatever it is."""

    @property
    def kind(self) -> PartKind:
        return "numbers"


def _is_numbers(part: Space) -> bool:
    """Whether it flattens into numbers that mean something."""
    try:
        return part.is_np_flattenable and not isinstance(part, spaces.Text)
    except NotImplementedError:  # a package's own kind of space
        return False


def parts_of(
    space: Space, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Space]]:
    """The parts of a space that have no parts, each with the keys that lead to it."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner: Any = (
            space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        )
        for key, part in inner:
            yield from parts_of(part, (*path, key))
    else:
        yield path, space


def _shape(leaf: Leaf) -> tuple[int, ...]:
    if isinstance(leaf.space, spaces.Box):
        return leaf.space.shape
    return (leaf.place.stop - leaf.place.start,)


def _taken(leaf: Leaf, dtype: str) -> tuple[tuple[int, ...], Encode | None]:
    """The shape of a part's values, and what is done to them if not nothing."""
    space = leaf.space
    if leaf.kind == "image" and dtype != "uint8":
        return space.shape or (), lambda value: np.asarray(value, np.float32) / 255
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return space.shape or (), None
    size = leaf.place.stop - leaf.place.start
    return (size,), lambda value: spaces.flatten(space, value)
