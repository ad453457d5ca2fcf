"""Messages between EXARL and a program that is an environment; docs/external.md has every byte.

A message is a header of 24 bytes and some arrays, all little-endian. Nothing in it is executed, every
length is checked before it is used, and a message that is not exactly right is a ``ProtocolError``.
"""

from __future__ import annotations

import math
import struct
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

MAGIC = b"EXRL"
VERSION = 1
HEADER = struct.Struct("<4sBBHQQ")  # magic, version, kind, arrays, session, bytes that follow
ARRAY = struct.Struct("<BB6x")  # type, dimensions
MAX_ARRAYS, MAX_DIMENSIONS = 16, 8
TYPES: dict[int, np.dtype[np.generic]] = {
    1: np.dtype("u1"),
    2: np.dtype("<i8"),
    3: np.dtype("<f4"),
    4: np.dtype("<f8"),
}
_CODES = {dtype: code for code, dtype in TYPES.items()}

MAX_BYTES = 64 << 20
"""Longest message that is accepted unless something else is asked for."""


class Kind(IntEnum):
    """What a message says. The learner's side asks, the environment's side answers."""

    HELLO = 1  # asks for SPACES
    SPACES = 2
    RESET = 3  # asks for OBSERVATION
    OBSERVATION = 4
    STEP = 5  # asks for RESULT
    RESULT = 6
    CLOSE = 7  # no answer
    ERROR = 8  # instead of any answer
    PING = 9  # asks a server for PONG
    PONG = 10
    # Only for a side that offered them: extras.py.
    GET_STATE = 16  # asks for STATE
    STATE = 17
    SET_STATE = 18  # asks for DONE
    DONE = 19
    RENDER = 20  # asks for PICTURE
    PICTURE = 21
    ACTED = 22  # instead of a RESULT, after the action that was taken


_KINDS = {int(kind): kind for kind in Kind}
STEP, RESULT = Kind.STEP, Kind.RESULT  # in Python 3.11, members of an Enum are slow to look up


class Fault(IntEnum):
    """What an ERROR is about. From FAILED on (but for FULL) the environment itself failed."""

    MALFORMED = 1  # the message was not understood
    NO_SESSION = 2  # the server does not know this session, or not any more
    FAILED = 3  # the environment raised an exception, or failed in a way that has no other number
    FULL = 4  # the server holds as many environments as it may
    CRASH = 5  # a process that the environment needs has ended
    TIMEOUT = 6  # something that the environment waited for took too long
    NAN = 7  # a number was NaN or infinite
    SHAPE = 8  # what the environment returned does not fit its spaces
    NOT_MADE = 9  # the environment cannot be made as configured


KINDS_OF_FAILURE: dict[int, str] = {
    Fault.CRASH: "crash",
    Fault.TIMEOUT: "timeout",
    Fault.NAN: "nan",
    Fault.SHAPE: "shape",
}
"""How an EnvironmentFailure calls a fault; "raise" where it is not among these."""


class ProtocolError(ValueError):
    """A message that is not exactly as docs/external.md says."""


class Message(NamedTuple):
    """One message; ``session`` is 0 unless a server gave a number to this conversation."""

    kind: Kind
    arrays: tuple[np.ndarray, ...] = ()
    session: int = 0


def encode(message: Message) -> bytes:
    """The bytes of a message; its arrays have one of the dtypes in ``TYPES``."""
    if not message.arrays:
        return encode_empty(message.kind, message.session)
    parts = [b""]
    for array in message.arrays:
        data = array.tobytes()
        parts += (
            ARRAY.pack(_CODES[array.dtype.newbyteorder("<")], array.ndim),
            struct.pack(f"<{array.ndim}Q", *array.shape),
            data,
            bytes(-len(data) % 8),
        )
    length = sum(map(len, parts))
    parts[0] = HEADER.pack(
        MAGIC, VERSION, message.kind, len(message.arrays), message.session, length
    )
    return b"".join(parts)


@lru_cache(256)  # with shared memory, every step sends two of them
def encode_empty(kind: Kind, session: int = 0) -> bytes:
    """The bytes of a message without arrays."""
    return HEADER.pack(MAGIC, VERSION, kind, 0, session, 0)


@lru_cache(256)
def _decode_header(data: bytes) -> tuple[Message, int, int]:
    """The message without its arrays, their number, and the number of bytes that follow."""
    kind, count, session, length = read_header(data)
    return Message(kind, (), session), count, length


def decode(data: bytes) -> Message:
    """The message in ``data``, whole and nothing after it; its arrays are views."""
    empty, count, length = _decode_header(data[: HEADER.size])
    if length != len(data) - HEADER.size:
        raise ProtocolError(f"{len(data) - HEADER.size} bytes follow the header, it says {length}")
    if not count and not length:
        return empty
    arrays, at = [], HEADER.size
    for _ in range(count):
        array, at = _read_array(data, at)
        arrays.append(array)
    if at != len(data):
        raise ProtocolError(f"{len(data) - at} bytes too many")
    return Message(empty.kind, tuple(arrays), empty.session)


def read_header(data: bytes) -> tuple[Kind, int, int, int]:
    """Kind, number of arrays, session and number of bytes that follow."""
    if len(data) < HEADER.size:
        raise ProtocolError(f"a header has {HEADER.size} bytes, not {len(data)}")
    magic, version, kind, count, session, length = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ProtocolError(f"a message begins with {MAGIC!r}, not {magic!r}")
    if version != VERSION:
        raise ProtocolError(f"version {version} of the protocol, this is version {VERSION}")
    if kind not in _KINDS:
        raise ProtocolError(f"no message has kind {kind}")
    if count > MAX_ARRAYS:
        raise ProtocolError(f"{count} arrays, at most {MAX_ARRAYS} are allowed")
    return _KINDS[kind], count, session, length


def with_session(data: bytes, session: int) -> bytes:
    """The same message in another session."""
    return data[:8] + struct.pack("<Q", session) + data[16:]


def _read_array(data: bytes, at: int) -> tuple[np.ndarray, int]:
    """The array that begins at byte ``at``, and where it ends."""
    if at + ARRAY.size > len(data):
        raise ProtocolError("the message ends inside an array")
    code, dimensions = ARRAY.unpack_from(data, at)
    if code not in TYPES:
        raise ProtocolError(f"no array has type {code}")
    if dimensions > MAX_DIMENSIONS:
        raise ProtocolError(f"{dimensions} dimensions, at most {MAX_DIMENSIONS} are allowed")
    at += ARRAY.size
    if at + 8 * dimensions > len(data):
        raise ProtocolError("the message ends inside a shape")
    shape = struct.unpack_from(f"<{dimensions}Q", data, at)
    at += 8 * dimensions
    if max(shape, default=0) > len(data):  # also where another dimension is 0
        raise ProtocolError(f"shape {shape} is larger than the message")
    count = math.prod(shape)
    size = count * TYPES[code].itemsize
    if size > len(data) - at:
        raise ProtocolError(f"shape {shape} is larger than the message")
    array = np.frombuffer(data, TYPES[code], count, at).reshape(shape)
    return array, at + size + -size % 8


# -- what the messages hold --------------------------------------------------------------------------


def reset_message(seed: int | None, session: int = 0) -> Message:
    """RESET: the seed, -1 for none."""
    return Message(Kind.RESET, (seed_array(seed),), session)


def seed_array(seed: int | None) -> np.ndarray:
    """A seed as it travels."""
    return np.array(-1 if seed is None else seed, np.int64)


def seed_of(message: Message) -> int | None:
    """The seed in a RESET."""
    seed = int(_only(message, (), "i8"))
    if seed < -1:
        raise ProtocolError(f"a seed is at least 0, or -1 for none, not {seed}")
    return None if seed == -1 else seed


def result_message(
    observation: np.ndarray, reward: float, terminated: bool, truncated: bool, session: int = 0
) -> Message:
    """RESULT: observation, reward, and whether the episode ended by its rules or by a limit."""
    ends = np.array([terminated, truncated], np.uint8)
    return Message(Kind.RESULT, (observation, np.array(reward, np.float64), ends), session)


def error_message(fault: Fault, text: str, session: int = 0) -> Message:
    """ERROR: what kind of fault, and a sentence for a person."""
    code = np.array(fault, np.int64)
    return Message(Kind.ERROR, (code, text_array(text)[:4000]), session)


def read_error(message: Message) -> tuple[int, str]:
    """The fault and the sentence in an ERROR."""
    match message.arrays:
        case (code, text) if code.shape == () and text.dtype == np.uint8:
            return int(code), " ".join(text.tobytes().decode(errors="replace").split())
    raise ProtocolError("an ERROR holds a number and a text")


def read_result(message: Message) -> tuple[np.ndarray, float, bool, bool]:
    """Observation, reward, terminated, truncated of a RESULT; ``info`` may follow them."""
    match message.arrays:
        case (observation, reward, ends, *_) if reward.shape == () and ends.shape == (2,):
            return observation, float(reward), bool(ends[0]), bool(ends[1])
    raise ProtocolError("a RESULT holds an observation, a reward and two flags")


def text_array(text: str) -> np.ndarray:
    """A text as it travels: UTF-8 in an array of bytes."""
    return np.frombuffer(text.encode(errors="replace"), np.uint8)


def bytes_of(message: Message) -> np.ndarray:
    """The only array of a message, which must be bytes: the state in a STATE or SET_STATE."""
    match message.arrays:
        case (array,) if array.dtype == np.uint8 and array.ndim == 1:
            return array
    raise ProtocolError(f"{message.kind.name} holds one array of bytes")


def ping_message(number: int, session: int = 0) -> Message:
    """PING: a number that the PONG repeats, above 0."""
    return Message(Kind.PING, (np.array(number, np.int64),), session)


def pong_message(number: int, working: bool, session: int = 0) -> Message:
    """PONG: the number of the PING (0: no PING), and whether a request is being worked on."""
    return Message(Kind.PONG, (np.array([number, working], np.int64),), session)


def read_ping(message: Message) -> int:
    """The number in a PING."""
    return int(_only(message, (), "i8"))


def read_pong(message: Message) -> tuple[int, bool]:
    """The number in a PONG, and whether a request is being worked on."""
    number, working = _only(message, (2,), "i8").tolist()
    return number, bool(working)


def _only(message: Message, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    match message.arrays:
        case (array,) if array.shape == shape and array.dtype == np.dtype(dtype):
            return array
    raise ProtocolError(f"{message.kind.name} holds one array {shape} of {np.dtype(dtype)}")
