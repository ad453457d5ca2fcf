"""What the processes of a run send each other: the types, the encoding and the tags.

A message is a small typed value, its header, followed by any number of buffers: arrays and bytes that
are copied once when the message is encoded and not at all when it is decoded. Layout: the header's
length (uint32), the header (MessagePack), zeros up to a multiple of 64 bytes, the buffers.
"""

from __future__ import annotations

import functools
import struct
from enum import IntEnum
from typing import Literal, TypeAlias, TypeVar, Union, cast

import msgspec
import numpy as np

T = TypeVar("T")
Payload: TypeAlias = "np.ndarray | bytes | bytearray | memoryview"
"""Contiguous memory that can be sent."""

HEADER_BYTES = 64
"""The padded length of a header that holds a few numbers, and what every header is a multiple of."""
LAST = 0
"""Instead of a snapshot's number: the last state of an actor, which then ends."""
_LENGTH = struct.Struct("<I")
_ZEROS = bytes(HEADER_BYTES)
_ENCODER = msgspec.msgpack.Encoder()


class MessageError(ValueError):
    """A message is cut short, or not of the kind that its receiver expects."""


class Tag(IntEnum):
    """Every tag of the project: who sends it to whom, and what the message is."""

    # Learner and actor
    ORDER = 1  # learner -> actor: an Order
    BLOCK = 2  # actor -> learner: a block (comm.codec); empty if it was abandoned (sync)
    STATE = 3  # actor -> learner: ActorState, then named arrays
    REPORT = 4  # actor -> learner, seed: a report on a step (comm.steps)
    # Within the ranks that share an environment
    GROUP_CALL = 11  # first member -> the others: GroupCall, then an action or named arrays
    GROUP_REPLY = 12  # other members -> the first: named arrays
    # The start of a run
    SPEC = 21  # first actor -> learners: EnvSpec
    START = 22  # rank 0 -> all: plain data about the run (Transport.share)
    STATES = 23  # rank 0 -> actor: the states its environments resume from, as named arrays
    # Learners among themselves
    NUDGE = 31  # learner -> learner 0: the number of the round that it has a block for
    OPEN = 32  # learner 0 -> learners: a round begins; empty
    ROUND_REPORT = 33  # learner -> learner 0: training.rounds.Report
    DECISION = 34  # learner 0 -> learners: training.rounds.Decision
    PART = 41  # learner -> learner 0: PartOfCheckpoint, then named arrays
    TALLY = 42  # learner -> learner 0: training.actors.Tally
    SUMMAND = 51  # learner -> learner 0: a bare float32 vector
    SUM = 52  # learner 0 -> learners: a bare float32 vector
    # The probe of one-sided access
    PROBE_TARGETS = 61  # reader -> others: the ranks to be read from
    PROBE_READY = 62  # reader <-> target, before each measurement; empty
    PROBE_LATENCY = 63  # reader -> others: seconds
    EVALUATED = 65  # first rank of a group -> rank 0, evaluation: the episodes that it played
    # A sweep inside one MPI job
    SWEEP_HELLO = 71  # rank -> manager: its host and cores
    SWEEP_PLACES = 72  # manager -> all: the hosts and cores of all (Transport.share)
    SWEEP_ORDER = 73  # manager -> the first rank of a group: what to start or end
    SWEEP_ENDED = 74  # the first rank of a group -> manager: a training's number and exit code
    # Simulations that join over a socket; also ORDER, BLOCK, STATE and SPEC
    JOIN = 81  # actor -> learner: Join
    WELCOME = 82  # learner -> actor: Welcome, then the states of its environments
    LEAVE = 83  # either end: Leave; nothing follows
    ALIVE = 84  # either end, when there is nothing else to send; empty


class Typed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A header that carries the name of its type."""


class Order(Typed, frozen=True):
    """What a learner tells an actor to do."""


class Grant(Order, frozen=True):
    """Act one block with the weights behind the header, or, in ``seed``, begin one."""

    version: int


class SendState(Order, frozen=True):
    """Send the state of the environments between two blocks, for the snapshot of that number."""

    snapshot: int


class Halt(Order, frozen=True):
    """Abandon the present block at the next step and wait for the next order (``sync``)."""


class StopActing(Order, frozen=True):
    """Abandon the present block, send the last state and end."""


class StepEnvs(Order, frozen=True):
    """Step one environment (slot -1: all) with the actions behind the header (``seed``)."""

    slot: int


class ActorState(Typed, frozen=True):
    """An actor's answer to ``SendState`` or ``StopActing``; the environments' states follow.

    ``sent`` blocks were handed over before this state, ``dropped`` of them for lack of room;
    ``abandoned`` were begun and not finished.
    """

    snapshot: int = LAST
    sent: int = 0
    dropped: int = 0
    abandoned: int = 0


class BlockHeader(Typed, frozen=True):
    """A block's ``BLOCK_NUMBERS``, its sender, its own number, and the sizes of its arrays."""

    block_numbers: tuple[int, ...]
    sender: int
    number: int  # 1 for the first block of its sender
    ends: int
    steps: int
    width: int
    failed: int


class StepKind(IntEnum):
    """What an actor of ``seed`` reports: a new process, a step, its state, its last state."""

    HELLO, STEPPED, STATE, GOODBYE = range(4)


class StepHeader(Typed, frozen=True):
    """A report on a step, before its arrays. ``incarnation`` names the process that sends it."""

    kind: StepKind
    incarnation: int
    slot: int
    restarts: int
    ends: int
    cuts: int
    failed: int


class GroupCall(Typed, frozen=True):
    """The call that all members of an environment group make next, on the environment of ``slot``."""

    call: Literal["reset", "step", "close", "get_state", "set_state", "compute", "end"]
    slot: int = 0
    seed: int | None = None


class Join(Typed, frozen=True):
    """A simulation of ``ranks`` ranks would like to act; ``place`` is its host and process."""

    version: str  # of EXARL
    ranks: int
    place: str


class Reply(Typed, frozen=True):
    """A learner's answer to a simulation that has joined."""


class Welcome(Reply, frozen=True):
    """What a simulation must know to act as an actor of the run.

    ``run`` is the learner's run directory, and ``part`` the part of the run that it writes: by these
    an actor recognises the directory on a shared disk.
    """

    actor: int
    configuration: str  # JSON
    actors: int
    run: str
    part: str
    rollbacks: int
    timeout: float  # seconds without a sign of life after which an end is lost


class Leave(Reply, frozen=True):
    """The sender, a learner or a simulation, leaves. ``code`` is an exit code, ``again``: the receiver
    may join again, since the run goes on."""

    reason: str
    code: int = 0
    again: bool = False


class PartOfCheckpoint(Typed, frozen=True):
    """A learner's part of checkpoint ``sequence``; ``numbers`` is JSON: its integers may be long."""

    sequence: int
    numbers: str
    silent: list[int]


def header(message: object) -> bytes:
    """``message`` as a padded header. It may be a ``Typed``, a dataclass or plain data."""
    body = _ENCODER.encode(message)
    size = len(body)
    return b"".join((_LENGTH.pack(size), body, _ZEROS[: -(size + _LENGTH.size) % HEADER_BYTES]))


def encode(message: object, *buffers: Payload) -> bytes:
    """``message`` and the contents of ``buffers``, which must be contiguous."""
    return b"".join((header(message), *cast(tuple[bytes, ...], buffers)))


def decode(payload: Payload, kind: type[T]) -> tuple[T, np.ndarray]:
    """The header as a ``kind`` (or a subclass of it), and the bytes behind it as a view.

    MessageError if the message is cut short or its header is of another kind.
    """
    data = payload if isinstance(payload, np.ndarray) else np.frombuffer(payload, np.uint8)
    start, buffer = _LENGTH.size, cast(bytes, data)  # arrays are buffers too
    end = start + (_LENGTH.unpack_from(buffer)[0] if len(data) >= start else 0)
    behind = end + -end % HEADER_BYTES
    if len(data) < behind:
        raise MessageError(f"a message of {len(data)} bytes is cut short: its header has {behind}")
    try:
        message: T = _decoder(kind).decode(buffer[start:end])  # type: ignore[arg-type]
    except msgspec.DecodeError as error:
        raise MessageError(f"a message is not of the kind {kind.__name__}: {error}") from error
    return message, data[behind:]


@functools.cache
def _decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    kinds = kind.__subclasses__() if isinstance(kind, type) and issubclass(kind, Typed) else []
    return msgspec.msgpack.Decoder(Union[tuple(kinds)] if kinds else kind)  # noqa: UP007
