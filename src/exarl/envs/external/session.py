"""One client of a server: its environment, where it stands, and what it may ask."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from exarl.envs.base import Space
from exarl.envs.external.extras import Extra
from exarl.envs.external.program import Program
from exarl.envs.external.protocol import (
    MAX_BYTES,
    Kind,
    Message,
    ProtocolError,
    bytes_of,
    seed_of,
)
from exarl.envs.external.spaces import check_value


@dataclass(frozen=True)
class Limits:
    """What a server gives to its clients."""

    sessions: int = 16
    idle_s: float = 3600.0  # without a message
    start_s: float = 60.0  # until a program has connected and described its spaces
    max_bytes: int = MAX_BYTES  # of a message
    probe_s: float = 60.0  # without a message, after which it is seen whether the client is there


@dataclass
class Session:
    """One client's environment. ``envelope`` is where its answers go."""

    id: int
    envelope: list[bytes]
    program: Program
    waiting: bytes = b""  # the request being answered
    spaces: tuple[Space, Space] | None = None
    extras: Extra = Extra(0)  # that the program offers
    begun: bool = False  # there was a reset
    started: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    probed: float = field(default_factory=time.monotonic)


def check_request(session: Session, message: Message) -> None:
    """ProtocolError for what no environment should ever see."""
    if session.waiting or session.spaces is None:
        raise ProtocolError("one request at a time: the last one is not answered yet")
    match message.kind:
        case Kind.RESET:
            seed_of(message)
        case Kind.STEP:
            if len(message.arrays) != 1:
                raise ProtocolError("a STEP holds one array, the action")
            check_value(session.spaces[1], message.arrays[0], "the action")
        case Kind.SET_STATE if Extra.STATE in session.extras:
            bytes_of(message)
        case Kind.GET_STATE if Extra.STATE in session.extras and not message.arrays:
            pass
        case Kind.RENDER if Extra.RENDER in session.extras and not message.arrays:
            pass
        case _:
            raise ProtocolError(f"{message.kind.name} is not for a server")
    if message.kind is not Kind.RESET and not session.begun:
        raise ProtocolError(f"a {message.kind.name} before the first RESET")
