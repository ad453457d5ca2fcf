"""A block of experience as one array of bytes, and named arrays likewise.

Layout of a block: a header of six int64 (K, T, B, version, restarts, F), then each array in the order
of its fields. Everything but the K-sized arrays and what follows has the same place in every block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from exarl.types import ACTOR_PHASES, BLOCK_ARRAYS, FAILURES, Arrays, ArraySpec, Block, EnvSpec

_HEADER = 6 * 8


@dataclass(frozen=True)
class BlockCodec:
    """Encodes and decodes the blocks of one run."""

    spec: EnvSpec
    recorded: Mapping[str, ArraySpec]

    def encode(self, block: Block) -> np.ndarray:
        """The block as bytes."""
        steps, width = block.rewards.shape
        counts = [len(block.episode_returns), steps, width]
        counts += [block.version, block.restarts, len(block.failures)]
        arrays = [np.array(counts, np.int64), *self._fields(block)]
        return np.concatenate([np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays])

    def decode(self, payload: np.ndarray) -> Block:
        """The block behind ``payload``; its arrays are views into it."""
        header = payload[:_HEADER].view(np.int64).tolist()
        count, steps, width, version, restarts, failed = header
        at = _HEADER
        arrays: list[np.ndarray] = []
        for spec, leading in self._shapes(count, steps, width, failed):
            shape = (*leading, *spec.shape)
            size = int(np.prod(shape)) * np.dtype(spec.dtype).itemsize
            arrays.append(payload[at : at + size].view(spec.dtype).reshape(shape))
            at += size
        if at != len(payload):
            raise ValueError(
                f"a block of {len(payload)} bytes does not fit this run's layout ({at})"
            )
        recorded = dict(zip(self.recorded, arrays[len(BLOCK_ARRAYS) :], strict=True))
        fields = dict(zip(BLOCK_ARRAYS, arrays, strict=False))
        return Block(**fields, recorded=recorded, version=version, restarts=restarts)

    def max_bytes(self, steps: int, width: int) -> int:
        """The longest encoding of a block of so many steps and environments."""
        shapes = self._shapes(steps * width, steps, width, width)
        return _HEADER + sum(
            int(np.prod((*leading, *spec.shape))) * np.dtype(spec.dtype).itemsize
            for spec, leading in shapes
        )

    def pack(self, blocks: Sequence[Block]) -> Arrays:
        """Blocks as named arrays, for a checkpoint."""
        return {f"{i:06d}": self.encode(block) for i, block in enumerate(blocks)}

    def unpack(self, arrays: Arrays) -> list[Block]:
        """The inverse of ``pack``."""
        return [self.decode(arrays[name]) for name in sorted(arrays)]

    def _fields(self, block: Block) -> list[np.ndarray]:
        return [
            *(getattr(block, name) for name in BLOCK_ARRAYS),
            *(block.recorded[name] for name in self.recorded),
        ]

    def _shapes(
        self, count: int, steps: int, width: int, failed: int
    ) -> list[tuple[ArraySpec, tuple[int, ...]]]:
        flag = ArraySpec((), "bool")
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
        ]


def encode_arrays(arrays: Arrays) -> bytes:
    """Named arrays of any shape as bytes (safetensors)."""
    from safetensors.numpy import save

    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def decode_arrays(payload: np.ndarray | bytes) -> Arrays:
    """The inverse of ``encode_arrays``."""
    from safetensors.numpy import load

    return load(bytes(payload))
