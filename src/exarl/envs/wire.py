"""What an isolated environment and its rank say to each other.

Calls and answers are short messages over a socket: a byte that names the call, the length of what
follows, and that. Observations and actions stand in memory that both share, so a step sends a few bytes
whatever its observation's size. Nothing is pickled.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.errors import ConfigError

MAKE, RESET, STEP, GET_STATE, SET_STATE, RENDER, CLOSE = range(7)
DONE, FAILED = range(2)
OUTCOME = struct.Struct("<d??")  # reward, terminated, truncated
SEED = struct.Struct("<q")  # -1: none
NO_SEED = -1

STACK_SIGNAL = signal.SIGUSR2
"""Asks a worker for the stacks of all its threads, in its output."""

_HEAD = struct.Struct("<BQ")
_SHORT, _LONG = 1 << 12, 1 << 20  # bytes read at once
_LOOK_EVERY_S = 1.0  # at whether somebody is still there, while waiting


class Gone(Exception):
    """The other side is not there any more."""


class Line:
    """One end of the socket: sends and receives whole messages."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._patience: float | None = -1.0  # of the socket, as last set

    def send(self, what: int, payload: bytes = b"") -> None:
        try:
            if payload:  # which may be long, and the other side slow to take it
                self._wait_at_most(None)
            self._end.sendall(_HEAD.pack(what, len(payload)) + payload)
        except OSError as error:
            raise Gone from error

    def receive(
        self, limit: float | None = None, alive: Callable[[], bool] | None = None
    ) -> tuple[int, bytes]:
        """The next message; TimeoutError after ``limit`` seconds, Gone when nobody can send it.

        With ``alive``, it is asked every second: a process may die while another holds its socket.
        """
        message = self._read(limit, alive)
        while len(message) < _HEAD.size:
            message += self._read(limit, alive)
        what, length = _HEAD.unpack_from(message)
        missing = _HEAD.size + length - len(message)
        if missing:
            parts = bytearray(message)
            while missing:
                parts += self._read(limit, alive, min(missing, _LONG))
                missing = _HEAD.size + length - len(parts)
            message = bytes(parts)
        return what, message[_HEAD.size :]

    def close(self) -> None:
        self._end.close()

    def fileno(self) -> int:
        return self._end.fileno()

    def _read(
        self, limit: float | None, alive: Callable[[], bool] | None, size: int = _SHORT
    ) -> bytes:
        waited = 0.0
        while True:
            left = None if limit is None else limit - waited
            turn = left if alive is None else min(_LOOK_EVERY_S, left or _LOOK_EVERY_S)
            self._wait_at_most(turn)
            try:
                data = self._end.recv(size)
            except TimeoutError:
                waited += turn or 0.0
                if limit is not None and waited >= limit:
                    raise
                if alive is not None and not alive():
                    raise Gone from None
                continue
            except OSError as error:
                raise Gone from error
            if not data:
                raise Gone
            return data

    def _wait_at_most(self, seconds: float | None) -> None:
        if seconds != self._patience:
            self._end.settimeout(seconds)
            self._patience = seconds


@dataclass(frozen=True)
class Memory:
    """The shared observation and action, as arrays over one mapping."""

    observation: np.ndarray
    action: np.ndarray

    @classmethod
    def size(cls, observation: spaces.Box, action: spaces.Space[Any]) -> int:
        return max(1, _bytes(observation) + _bytes(action))

    @classmethod
    def over(cls, mapping: mmap.mmap, observation: spaces.Box, action: spaces.Space[Any]) -> Memory:
        at = _bytes(observation)
        return cls(_array(mapping, observation, 0), _array(mapping, action, at))


def make_room(file: int, size: int) -> None:
    """Make the shared file ``size`` bytes long; ConfigError where there is not so much room.

    The memory is taken at once: what is only promised would be a bus error later, in some step.
    """
    try:
        os.truncate(file, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            return  # this kind of file cannot be asked
        raise ConfigError(
            f"env_isolation process needs {size / 1e6:,.1f} MB of shared memory for observations and"
            f" actions, and cannot have it: {error.strerror}"
        ) from error


def observed(space: spaces.Space[Any]) -> spaces.Box:
    """The space of what is shared: a Box as it is, anything else flattened to float32."""
    if isinstance(space, spaces.Box):
        return space
    if not space.is_np_flattenable:
        raise ConfigError(f"observations cannot be flattened: {space}")
    return spaces.Box(-np.inf, np.inf, (spaces.flatdim(space),), np.float32)


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space of arrays as plain data."""
    if isinstance(space, spaces.Box):
        low, high = (_short(bound) for bound in (space.low, space.high))
        shape, dtype = list(space.shape), np.dtype(space.dtype).name
        return {"type": "Box", "low": low, "high": high, "shape": shape, "dtype": dtype}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        dtype = np.dtype(space.dtype).name
        nvec, start = space.nvec.tolist(), space.start.tolist()
        return {"type": "MultiDiscrete", "nvec": nvec, "dtype": dtype, "start": start}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": list(space.shape)}
    raise ConfigError(f"env_isolation process cannot hand over actions of {space}")


def read_space(data: Mapping[str, Any]) -> spaces.Space[Any]:
    """The inverse of ``describe_space``."""
    options = dict(data)
    kind = options.pop("type")
    if kind == "Box":
        dtype, shape = np.dtype(options["dtype"]), tuple(options["shape"])
        low, high = (np.broadcast_to(options[n], shape).astype(dtype) for n in ("low", "high"))
        return spaces.Box(low, high, shape, dtype)  # type: ignore[arg-type]
    made: spaces.Space[Any] = getattr(spaces, kind)(**options)
    return made


def _short(bound: np.ndarray) -> Any:
    """A bound as lists, or as one number where all are the same."""
    flat = bound.ravel()
    return flat[0].item() if flat.size and (flat == flat[0]).all() else bound.tolist()


def _bytes(space: spaces.Space[Any]) -> int:
    count = int(np.prod(space.shape or ()))
    return -(-count * np.dtype(space.dtype).itemsize // 64) * 64  # each begins on a line of cache


def _array(mapping: mmap.mmap, space: spaces.Space[Any], at: int) -> np.ndarray:
    shape, dtype = space.shape or (), np.dtype(space.dtype)
    return np.frombuffer(mapping, dtype, int(np.prod(shape)), at).reshape(shape)
