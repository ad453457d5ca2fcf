"""Memory that EXARL and a program it starts share, so that a step sends 24 bytes each way for an
observation of any size.

It holds the observation at byte 0, the action at the next multiple of 64, and at the one after that the
reward (float64), terminated and truncated (a byte each).
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import tempfile
from dataclasses import dataclass

import numpy as np

from exarl.envs.base import Space
from exarl.envs.external.spaces import wire_dtype
from exarl.errors import ConfigError

MEMORY = "EXARL_MEMORY"
"""The environment variable with the number of the file to share, which the program inherits."""

_OUTCOME = struct.Struct("<d??")
_LINE = 64  # bytes of a cache line: nothing shares one


@dataclass(frozen=True)
class SharedMemory:
    """The shared arrays; ``read_outcome`` and ``write_outcome`` are for the rest of a result."""

    mapping: mmap.mmap
    observation: np.ndarray
    action: np.ndarray
    outcome_at: int

    @classmethod
    def over(cls, file: int, observation: Space, action: Space) -> SharedMemory:
        """Map ``file``, which is large enough for these spaces."""
        mapping = mmap.mmap(file, needed_bytes(observation, action))
        place = _bytes(observation)
        arrays = _array(mapping, observation, 0), _array(mapping, action, place)
        return cls(mapping, *arrays, place + _bytes(action))

    def write_outcome(self, reward: float, terminated: bool, truncated: bool) -> None:
        _OUTCOME.pack_into(self.mapping, self.outcome_at, reward, terminated, truncated)

    def read_outcome(self) -> tuple[float, bool, bool]:
        """Reward, terminated, truncated."""
        return _OUTCOME.unpack_from(self.mapping, self.outcome_at)  # type: ignore[return-value]


def needed_bytes(observation: Space, action: Space) -> int:
    """The size of the memory for these spaces."""
    return _bytes(observation) + _bytes(action) + _LINE


def nameless_file() -> int:
    """A file in memory without a name, so that nothing is left of it when all its users are killed."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("exarl-env")
    with tempfile.TemporaryFile() as file:  # unlinked from the beginning
        return os.dup(file.fileno())


def make_room(file: int, size: int) -> None:
    """Make the shared file ``size`` bytes long; ConfigError where there is too little room.

    The memory is allocated at once: what is only promised would be a bus error in a later step.
    """
    try:
        os.truncate(file, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            return  # this kind of file cannot be allocated
        raise ConfigError(
            f"env_isolation process needs {size / 1e6:,.1f} MB of shared memory for observations and"
            f" actions, and cannot have it: {error.strerror}"
        ) from error


def _bytes(space: Space) -> int:
    count = int(np.prod(space.shape or ()))
    return -(-count * wire_dtype(space).itemsize // _LINE) * _LINE


def _array(mapping: mmap.mmap, space: Space, at: int) -> np.ndarray:
    shape, dtype = space.shape or (), wire_dtype(space)
    return np.frombuffer(mapping, dtype, int(np.prod(shape)), at).reshape(shape)
