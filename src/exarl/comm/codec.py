"""A block of experience as one array of bytes, and named arrays likewise.

A block is a ``BlockHeader`` and then each array in the order of its fields. Everything but the arrays
with an entry per ended episode, and what follows them, has the same place in every block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import numpy as np

from exarl.comm.messages import BlockHeader, MessageError, decode, encode, header
from exarl.types import (
    ACTOR_PHASES,
    BLOCK_ARRAYS,
    BLOCK_NUMBERS,
    FAILURES,
    Arrays,
    ArraySpec,
    Block,
    EnvSpec,
    EpisodeInfo,
    Steps,
    specs_of_steps,
    unknown_steps,
)

Place: TypeAlias = "tuple[str, np.dtype[np.generic], tuple[int, ...], int]"
"""Of an array in a message: its name, dtype, shape and first byte."""
Layout: TypeAlias = tuple[list[Place], int]
"""Of all arrays of a block, and their end."""
MOST_LAYOUTS = 1000
"""Layouts that are kept: blocks differ in how many episodes end in them."""
MOST_TOLD = 256
"""The number of episodes of a block, the last of them, whose ``info`` it carries."""
MOST_BYTES_TOLD = 64 * 115
"""Of an episode: 64 names of 64 bytes with five numbers each (``envs.info``), encoded."""
_TOLD = msgspec.msgpack.Decoder(tuple[dict[str, tuple[float, float, float, float, float]], ...])
_LARGEST = 2**63 - 1
_LONGEST_HEADER = len(header(BlockHeader((_LARGEST,) * len(BLOCK_NUMBERS), *[_LARGEST] * 6)))


@dataclass(frozen=True)
class BlockCodec:
    """Encodes and decodes the blocks of one run, with a lead if it has ``lead_steps``."""

    spec: EnvSpec
    recorded: Mapping[str, ArraySpec]
    lead_steps: int = 0
    info: bool = False
    """Whether blocks may have ``episode_info``, which then follows the arrays."""
    _layouts: dict[tuple[int, ...], Layout] = field(default_factory=dict, init=False, compare=False)

    def encode(self, block: Block, sender: int = 0, number: int = 0) -> np.ndarray:
        """The block as bytes, with the ``number`` that its ``sender`` gives it."""
        steps, width = block.rewards.shape
        ends, failed = len(block.episode_returns), len(block.failures)
        numbers = tuple(getattr(block, name) for name in BLOCK_NUMBERS)
        head = BlockHeader(numbers, sender, number, ends, steps, width, failed)
        arrays = [np.ascontiguousarray(array) for array in self._fields(block)]
        arrays += [encode_info(block.episode_info)] if block.episode_info else []
        return np.frombuffer(encode(head, *arrays), np.uint8)

    def decode(self, payload: np.ndarray | bytes) -> Block:
        """The block behind ``payload``; its arrays are views into it.

        ValueError if the bytes do not have the layout of this run's blocks.
        """
        return self.decode_numbered(payload)[1]

    def decode_numbered(self, payload: np.ndarray | bytes) -> tuple[BlockHeader, Block]:
        """Like ``decode``, with the header, which names the sender and the block's number."""
        head, body = decode(payload, BlockHeader)
        places, end = self._layout(head.ends, head.steps, head.width, head.failed)
        told = self.info and end < len(body)
        if end != len(body) and not told:
            raise ValueError(f"a block of {len(body)} bytes does not fit this run's layout ({end})")
        arrays = {name: np.ndarray(shape, kind, body, at) for name, kind, shape, at in places}
        info = decode_info(body[end:]) if told else ()
        numbers = dict(zip(BLOCK_NUMBERS, head.block_numbers, strict=True))
        return head, self._block(arrays, numbers, info)

    def max_bytes(self, steps: int, width: int) -> int:
        """The longest encoding of a block of ``steps`` steps of ``width`` environments."""
        shapes = self._shapes(steps * width, steps, width, width)
        told = min(steps * width, MOST_TOLD) * MOST_BYTES_TOLD if self.info else 0
        return (
            _LONGEST_HEADER
            + told
            + sum(
                math.prod((*leading, *spec.shape)) * np.dtype(spec.dtype).itemsize
                for spec, leading in shapes
            )
        )

    def pack(self, blocks: Sequence[Block], numbers: Sequence[int] | None = None) -> Arrays:
        """Blocks as named arrays, for a checkpoint: later versions read these, unlike messages.

        They keep the order of their ``numbers``, by default that of ``blocks``.
        """
        return {
            f"{number:06d}/{name}": np.asarray(array)
            for number, block in zip(numbers or range(len(blocks)), blocks, strict=True)
            for name, array in (
                *zip(self._names(), self._fields(block), strict=True),
                *((name, getattr(block, name)) for name in BLOCK_NUMBERS),
                *((("info", encode_info(block.episode_info)),) if block.episode_info else ()),
            )
        }

    def unpack(self, arrays: Arrays) -> list[Block]:
        """The inverse of ``pack``; ValueError or KeyError when an array does not fit this run."""
        blocks: dict[str, Arrays] = {}
        for name, array in arrays.items():
            number, _, inner = name.partition("/")
            blocks.setdefault(number, {})[inner] = array
        return [self._checked(blocks[number]) for number in sorted(blocks)]

    def _checked(self, named: Arrays) -> Block:
        named = {"simulations": np.array(0), **named}  # blocks of older checkpoints have none
        steps, width = named["rewards"].shape
        if self.lead_steps and "lead/known" not in named:  # written before blocks had a lead
            lead = unknown_steps(self.spec, self.lead_steps, width)
            named = {**named, **{f"lead/{name}": a for name, a in lead._asdict().items()}}
        count, failed = len(named["episode_returns"]), len(named["failures"])
        shapes = self._shapes(count, steps, width, failed)
        for name, (spec, leading) in zip(self._names(), shapes, strict=True):
            array, shape = named[name], (*leading, *spec.shape)
            if array.shape != shape or array.dtype != spec.dtype:
                raise ValueError(
                    f"{name} of a block is {array.dtype} {list(array.shape)}, not"
                    f" {spec.dtype} {list(shape)}"
                )
        info = decode_info(named["info"]) if "info" in named else ()
        return self._block(named, {name: int(named[name]) for name in BLOCK_NUMBERS}, info)

    def _block(
        self, named: Arrays, numbers: Mapping[str, int], info: tuple[EpisodeInfo, ...]
    ) -> Block:
        lead = Steps(*(named[f"lead/{n}"] for n in Steps._fields)) if self.lead_steps else None
        return Block.of(
            {name: named[name] for name in BLOCK_ARRAYS},
            {name: named[f"recorded/{name}"] for name in self.recorded},
            numbers,
            lead,
            info,
        )

    def _names(self) -> list[str]:
        lead = (f"lead/{name}" for name in Steps._fields) if self.lead_steps else ()
        return [*BLOCK_ARRAYS, *(f"recorded/{name}" for name in self.recorded), *lead]

    def _fields(self, block: Block) -> list[np.ndarray]:
        return [
            *(getattr(block, name) for name in BLOCK_ARRAYS),
            *(block.recorded[name] for name in self.recorded),
            *(np.asarray(array) for array in (block.lead or ())),
        ]

    def _layout(self, *counts: int) -> Layout:
        """Where the arrays of a block with these counts (``_shapes``) lie behind its header."""
        if (found := self._layouts.get(counts)) is not None:
            return found
        places: list[Place] = []
        at = 0
        for name, (spec, leading) in zip(self._names(), self._shapes(*counts), strict=True):
            kind, shape = np.dtype(spec.dtype), (*leading, *spec.shape)
            places.append((name, kind, shape, at))
            at += math.prod(shape) * kind.itemsize
        if len(self._layouts) == MOST_LAYOUTS:
            self._layouts.clear()
        self._layouts[counts] = places, at
        return places, at

    def _shapes(
        self, count: int, steps: int, width: int, failed: int
    ) -> list[tuple[ArraySpec, tuple[int, ...]]]:
        flag = ArraySpec((), "bool")
        lead = specs_of_steps(self.spec) if self.lead_steps else ()
        return [
            (self.spec.observation, (steps + 1, width)),
            (self.spec.action, (steps, width)),
            (ArraySpec((), "float32"), (steps, width)),
            (flag, (steps, width)),
            (flag, (steps, width)),
            (self.spec.observation, (count,)),
            (ArraySpec((), "float64"), (count,)),
            (ArraySpec((), "int64"), (count,)),
            (ArraySpec((), "float64"), (len(ACTOR_PHASES),)),
            (ArraySpec((1 + len(FAILURES),), "int64"), (failed,)),
            *((spec, (steps, width)) for spec in self.recorded.values()),
            *((spec, (self.lead_steps, width)) for spec in lead),
        ]


def encode_info(info: Sequence[EpisodeInfo]) -> np.ndarray:
    """What is told of some episodes as bytes."""
    return np.frombuffer(msgspec.msgpack.encode(info), np.uint8)


def decode_info(payload: np.ndarray) -> tuple[EpisodeInfo, ...]:
    """The inverse of ``encode_info``; MessageError if the bytes are none of it."""
    try:
        told: tuple[EpisodeInfo, ...] = _TOLD.decode(payload.tobytes())
    except msgspec.DecodeError as error:
        raise MessageError(f"a message holds no numbers of episodes: {error}") from error
    return told


def encode_arrays(arrays: Arrays) -> bytes:
    """Named arrays of any shape as bytes (safetensors)."""
    from safetensors.numpy import save

    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def decode_arrays(payload: np.ndarray | bytes) -> Arrays:
    """The inverse of ``encode_arrays``; MessageError if the bytes are none of it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(bytes(payload))
    except SafetensorError as error:
        raise MessageError(f"a message holds no arrays: {error}") from error
