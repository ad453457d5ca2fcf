"""Named parameters as one flat float32 vector and back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from exarl.types import Arrays, Params


@dataclass(frozen=True)
class ParamLayout:
    """The place of each named array in the flat vector, in the order of the names given."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, params: Params) -> ParamLayout:
        return cls(tuple((name, tuple(np.shape(array))) for name, array in params.items()))

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for _, shape in self.shapes)

    def pack(self, params: Params) -> np.ndarray:
        """All arrays as one new float32 vector."""
        flat = np.empty(self.size, np.float32)
        for name, view in self.unpack(flat).items():
            array = np.asarray(params[name], np.float32)
            if array.shape != view.shape:
                raise ValueError(f"'{name}' has shape {array.shape}, expected {view.shape}")
            view[...] = array
        return flat

    def unpack(self, flat: np.ndarray) -> Arrays:
        """Views into ``flat``, without a copy."""
        if flat.shape != (self.size,):
            raise ValueError(f"expected {self.size} weights, got an array of shape {flat.shape}")
        params: Arrays = {}
        start = 0
        for name, shape in self.shapes:
            stop = start + math.prod(shape)
            params[name] = flat[start:stop].reshape(shape)
            start = stop
        return params
