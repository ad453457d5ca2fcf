"""What a program may offer beyond ``reset`` and ``step``; docs/external.md has every byte.

EXARL's HELLO says which extras it understands, and the SPACES that answers it which of them the program
offers. A program that knows nothing of them ignores the number in HELLO and answers as it always did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntFlag
from typing import Any

import msgspec
import numpy as np

from exarl.envs.external.protocol import Message, ProtocolError, text_array
from exarl.envs.info import numbers_in


class Extra(IntFlag):
    """What else may be asked of a program."""

    STATE = 1  # GET_STATE and SET_STATE
    RENDER = 2  # RENDER
    INFO = 4  # OBSERVATION and RESULT also hold the numbers in ``info``
    MEMORY = 8  # observations, actions, rewards and ends of episodes are in shared memory
    LOOP = 16  # the program owns the loop: a RESULT may come before its STEP, and be an ACTED


ALL = Extra.STATE | Extra.RENDER | Extra.INFO | Extra.MEMORY | Extra.LOOP


class Description(msgspec.Struct, frozen=True):
    """What a program says about its environment besides its spaces."""

    max_episode_steps: int | None = None  # which the asking side has to keep
    render_mode: str | None = None
    render_modes: Sequence[str] = ()
    render_fps: float | None = None
    about: Mapping[str, str] = {}
    observation: Mapping[str, Any] | None = None  # the space of observations that travel flattened
    action: Mapping[str, Any] | None = None  # the space of actions that travel as one vector


def hello_arrays(wanted: Extra, order: str = "") -> tuple[np.ndarray, ...]:
    """What a HELLO holds: the extras that are understood; for a program that has to be asked for an
    environment, also a text that says which."""
    return (np.array(int(wanted), np.int64), *([text_array(order)] if order else []))


def read_hello(message: Message) -> tuple[Extra, str]:
    """The extras and the text in a HELLO; both are empty in one that holds nothing."""
    match message.arrays:
        case ():
            return Extra(0), ""
        case (wanted, *order) if _is_number(wanted) and len(order) <= 1:
            return Extra(int(wanted) & ALL), "".join(map(_text, order))
    raise ProtocolError("a HELLO holds nothing, or a number and perhaps a text")


def with_extras(spaces: Message, offered: Extra, description: Description) -> Message:
    """The answer to a HELLO that holds a number: SPACES, the extras that are offered, and a text."""
    text = msgspec.json.encode(description).decode()
    arrays = (*spaces.arrays, np.array(int(offered), np.int64), text_array(text))
    return spaces._replace(arrays=arrays)


def read_extras(spaces: Message) -> tuple[Extra, Description]:
    """The extras in a SPACES and what it says about the environment; nothing in a plain one."""
    match spaces.arrays[5:]:
        case ():
            return Extra(0), Description()
        case (offered, text) if _is_number(offered):
            try:
                return Extra(int(offered) & ALL), msgspec.json.decode(_text(text), type=Description)
            except msgspec.MsgspecError as error:
                raise ProtocolError(f"SPACES with a description that is none: {error}") from error
    raise ProtocolError("SPACES holds five arrays, or these, a number and a text")


def info_arrays(info: Mapping[str, object]) -> tuple[np.ndarray, ...]:
    """The numbers in ``info`` as they travel: their names, a line each, and their values. Nothing,
    where there are none."""
    numbers = {name: value for name, value in numbers_in(info) if "\n" not in name}
    if not numbers:
        return ()
    return text_array("\n".join(numbers)), np.array(list(numbers.values()), np.float64)


def read_info(arrays: Sequence[np.ndarray]) -> dict[str, float]:
    """The inverse of ``info_arrays``."""
    match arrays:
        case ():
            return {}
        case (names, values) if values.ndim == 1 and values.dtype == np.float64:
            lines = _text(names).split("\n")
            if len(lines) == len(values):
                return dict(zip(lines, values.tolist(), strict=True))
    raise ProtocolError("info is one line of text and one float64 for each number")


def _is_number(array: np.ndarray) -> bool:
    return array.shape == () and array.dtype == np.int64


def _text(array: np.ndarray) -> str:
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ProtocolError("a text is an array of bytes")
    return array.tobytes().decode(errors="replace")
