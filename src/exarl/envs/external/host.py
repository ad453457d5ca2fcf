"""The environment's side in Python: a Gymnasium environment answers messages.

    python -m exarl.envs.external.host ID ['{"parameter": value}']

is a program for ``ExaExternal-v0``, and what ``exarl serve-env`` starts for each client. A solver in
Python calls ``host(env)`` itself. ``exarl.envs.worker`` is the program of an isolated environment.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.envs.base import Env, can_snapshot, described
from exarl.envs.external.extras import (
    Description,
    Extra,
    info_arrays,
    read_hello,
    with_extras,
)
from exarl.envs.external.link import ADDRESS, Link, connect
from exarl.envs.external.protocol import (
    KINDS_OF_FAILURE,
    RESULT,
    STEP,
    Fault,
    Kind,
    Message,
    ProtocolError,
    bytes_of,
    decode,
    encode,
    encode_empty,
    error_message,
    result_message,
    seed_of,
)
from exarl.envs.external.shared_memory import SharedMemory, make_room, needed_bytes
from exarl.envs.external.spaces import (
    Port,
    action_port,
    check_value,
    original,
    port,
    spaces_message,
)
from exarl.envs.guard import FAILING, close_at_end, in_words
from exarl.envs.masks import with_masks
from exarl.envs.outcome import ContractError, as_number, begin_with_info, not_five
from exarl.errors import ConfigError, EnvironmentFailure

log = logging.getLogger(__name__)

_FAULTS = {kind: Fault(fault) for fault, kind in KINDS_OF_FAILURE.items()}
_STEPS = "exarl/steps"  # in the state of an environment whose episodes are cut here


def host(env: gymnasium.Env[Any, Any], link: Link | None = None) -> None:
    """Answer for ``env`` until the other side closes or is gone; the environment is closed then.

    ``link`` is by default the one that EXARL_ADDRESS names. Whatever the environment raises is
    reported to the other side, which may reset it.
    """
    answer_all(open_link() if link is None else link, Answering(with_masks(env)))


def open_link() -> Link:
    """The connection to EXARL, which started this program; ConfigError when there is none."""
    address = os.environ.get(ADDRESS)
    if not address:
        raise ConfigError(f"{ADDRESS} is not set: this program is started by ExaExternal-v0")
    return connect(address)


def answer_all(link: Link, answering: Answering, first: bytes | None = None) -> None:
    """Answer every message, beginning with ``first`` if that was received already."""
    try:
        while True:
            answer = answering.to(link.receive() if first is None else first)
            if answer is None:
                return
            link.send(answer)
            first = None
    except EOFError:
        return
    finally:
        link.close()
        close_at_end(0, answering.env)


class Answering:
    """An environment and where it stands: what to answer to each message.

    ``observation`` is how observations travel if not as they are, ``limit`` the number of steps after
    which an episode is cut here, ``announced_limit`` one that the other side has to keep, ``memory`` an
    empty file to share.
    """

    def __init__(
        self,
        env: Env,
        *,
        observation: Port | None = None,
        limit: int | None = None,
        announced_limit: int | None = None,
        memory: int | None = None,
    ) -> None:
        self.env = env
        self._observation = observation or port(env.observation_space)
        self._action = action_port(env.action_space)
        self._limit, self._announced_limit = limit, announced_limit
        self._file = memory
        self._memory: SharedMemory | None = None
        self._extras = Extra(0)
        self._tells_info = False
        self._begun = False
        self._steps = 0  # of this episode

    def to(self, data: bytes) -> bytes | None:
        """The answer to a message; None to CLOSE."""
        session, kind = 0, None
        try:
            kind, arrays, session = message = decode(data)
            if kind is STEP:
                return self._step(arrays, session)
            if kind is Kind.CLOSE:
                return None
            return encode(self._answer(message))
        except ProtocolError as error:
            return encode(error_message(Fault.MALFORMED, str(error), session))
        except FAILING as error:
            self._begun = False
            return encode(error_message(*explained(error, kind is Kind.HELLO), session))

    def _answer(self, message: Message) -> Message:
        session = message.session
        match message.kind:
            case Kind.RESET:
                raw, info = begin_with_info(self.env, seed_of(message))
                self._begun, self._steps = True, 0
                arrays = (*self._observed(raw), *self._info(info))
                return Message(Kind.OBSERVATION, arrays, session)
            case Kind.HELLO:
                return self._hello(message)
        asked = {
            Kind.GET_STATE: (Extra.STATE, self._get_state),
            Kind.SET_STATE: (Extra.STATE, self._set_state),
            Kind.RENDER: (Extra.RENDER, self._render),
        }.get(message.kind)
        if asked is None or asked[0] not in self._extras:
            raise ProtocolError(f"{message.kind.name} is not for this environment")
        self._check_begun(message.kind)
        return asked[1](message)

    def _hello(self, message: Message) -> Message:
        spaces = self._observation.space, self._action.space
        answer = spaces_message(*spaces, message.session)
        wanted, _ = read_hello(message)
        if not message.arrays:
            return answer
        if Extra.MEMORY in wanted and self._file is not None:
            make_room(self._file, needed_bytes(*spaces))
            self._memory = SharedMemory.over(self._file, *spaces)
        offered = Extra.INFO
        if can_snapshot(self.env) and not _counts_steps(self.env):
            offered |= Extra.STATE
        modes, fps = (self.env.metadata.get(name) for name in ("render_modes", "render_fps"))
        if modes or self.env.render_mode is not None:
            offered |= Extra.RENDER
        if self._memory is not None:
            offered |= Extra.MEMORY
        self._extras = offered & wanted
        self._tells_info = Extra.INFO in self._extras
        description = Description(
            self._announced_limit,
            self.env.render_mode,
            modes or (),
            fps,
            described(self.env),
            original(self.env.observation_space),
            original(self.env.action_space),
        )
        return with_extras(answer, self._extras, description)

    def _step(self, arrays: tuple[np.ndarray, ...], session: int) -> bytes:
        self._check_begun(STEP)
        memory = self._memory
        found = self.env.step(
            self._chosen(arrays) if memory is None else self._action.receive(memory.action)
        )
        try:
            raw, paid, terminated, truncated, info = found
        except (TypeError, ValueError):
            raise not_five(found) from None
        self._steps += 1
        terminated, truncated = bool(terminated), bool(truncated) or self._steps == self._limit
        try:
            reward = as_number(paid)
        except ContractError as error:
            raise ContractError(f"it returned {error}") from error
        seen, known = self._observed(raw), self._info(info)
        if memory is not None:
            memory.write_outcome(reward, terminated, truncated)
            if not known:
                return encode_empty(RESULT, session)
            return encode(Message(Kind.RESULT, known, session))
        result = result_message(seen[0], reward, terminated, truncated, session)
        return encode(result._replace(arrays=result.arrays + known) if known else result)

    def _check_begun(self, kind: Kind) -> None:
        if not self._begun:
            raise ProtocolError(f"a {kind.name} before the first RESET, or after a failure")

    def _chosen(self, arrays: tuple[np.ndarray, ...]) -> object:
        """The action in a STEP."""
        if len(arrays) != 1:
            raise ProtocolError("a STEP holds one array, the action")
        check_value(self._action.space, arrays[0], "the action")
        return self._action.receive(arrays[0])

    def _observed(self, raw: object) -> tuple[np.ndarray, ...]:
        """The observation for an answer; nothing, after it was written to the shared memory.

        EnvironmentFailure of kind ``shape`` when it does not fit its space.
        """
        try:
            if self._memory is None:
                return (self._observation.send(raw),)
            shared, seen = self._memory.observation, self._observation.arrange(raw)
            if seen.shape == shared.shape and seen.dtype.kind in "biuf":
                np.copyto(shared, seen, casting="unsafe")
                return ()
        except (TypeError, ValueError, LookupError) as error:
            cause = f"what is not of its spaces ({in_words(error)})"
            raise EnvironmentFailure(f"it returned {cause}", "shape") from error
        raise EnvironmentFailure(
            f"it returned an observation of shape {seen.shape} and type {seen.dtype}, its space says"
            f" {shared.shape} and {shared.dtype}",
            "shape",
        )

    def _info(self, info: object) -> tuple[np.ndarray, ...]:
        return info_arrays(info) if info and self._tells_info and isinstance(info, dict) else ()

    def _get_state(self, message: Message) -> Message:
        state = self.env.unwrapped.get_state()  # type: ignore[attr-defined]
        if self._limit is not None:
            state = {**state, _STEPS: np.array(self._steps)}
        array = np.frombuffer(encode_arrays(state), np.uint8)
        return Message(Kind.STATE, (array,), message.session)

    def _set_state(self, message: Message) -> Message:
        state = decode_arrays(bytes_of(message).tobytes())
        if self._limit is not None:
            self._steps = int(state.pop(_STEPS))
        self.env.unwrapped.set_state(state)  # type: ignore[attr-defined]
        return Message(Kind.DONE, (), message.session)

    def _render(self, message: Message) -> Message:
        picture = np.asarray(self.env.render())
        if picture.dtype.kind not in "biuf":
            what = f"render returned an array of {picture.dtype}, which is no picture"
            raise EnvironmentFailure(what, "shape")
        if picture.dtype != np.uint8:
            picture = picture.astype(np.float64)
        return Message(Kind.PICTURE, (picture,), message.session)


def explained(error: BaseException, at_start: bool) -> tuple[Fault, str]:
    """What an environment raised, for the other side: the fault and a sentence.

    An exception of its own is also written to this program's output, with its traceback.
    """
    if isinstance(error, EnvironmentFailure):
        return _FAULTS.get(error.kind, Fault.FAILED), str(error)
    if isinstance(error, ContractError):
        return Fault.SHAPE, str(error)
    if at_start and isinstance(error, ConfigError):
        return Fault.NOT_MADE, str(error)
    log.error("the environment failed", exc_info=error)
    return Fault.FAILED, in_words(error)


def _counts_steps(env: Env) -> bool:
    """Whether a TimeLimit is around it, whose count its state does not hold."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return True
        env = env.env
    return False


def main(words: list[str]) -> None:
    """Serve the environment of the command line ``words``: an id, and parameters in JSON."""
    from exarl.envs.registration import make_env

    id, *rest = words
    env, limit = make_env(id, json.loads(rest[0]) if rest else {})
    # A client has no part in this registration: the limit is kept here.
    answer_all(open_link(), Answering(env, limit=limit))


if __name__ == "__main__":
    main(sys.argv[1:])
