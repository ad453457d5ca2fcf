"""An environment on the other side of a connection: EXARL asks, the other side answers."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces

from exarl.envs.base import ExaEnv, Info, Space
from exarl.envs.external.extras import Description, Extra, hello_arrays, read_extras, read_info
from exarl.envs.external.protocol import (
    KINDS_OF_FAILURE,
    STEP,
    Fault,
    Kind,
    Message,
    ProtocolError,
    bytes_of,
    decode,
    encode,
    encode_empty,
    read_error,
    read_result,
    seed_array,
)
from exarl.envs.external.shared_memory import SharedMemory
from exarl.envs.external.spaces import actions_as_said, as_said, check_value, port, read_spaces
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.types import Arrays

_ANSWERS = {
    Kind.HELLO: Kind.SPACES,
    Kind.RESET: Kind.OBSERVATION,
    Kind.STEP: Kind.RESULT,
    Kind.GET_STATE: Kind.STATE,
    Kind.SET_STATE: Kind.DONE,
    Kind.RENDER: Kind.PICTURE,
}
Seen = np.ndarray | np.int64
"""An observation: a number if its space is Discrete."""

_STATE = "state"  # the name of a state that only the other side understands


class SessionLost(EnvironmentFailure):
    """The other side does not know this session any more."""


class NotUnderstood(EnvironmentFailure):
    """The other side calls a message malformed."""


class ClientEnv(ExaEnv):
    """Asks the other side for spaces, resets, steps and what else it offers, and checks the answers.

    A subclass carries the messages (``_open``, ``_exchange``) and calls ``_begin`` when it is made.
    What ends its connection goes into ``_end``, so that nothing outlives this environment, closed or
    not. After a failure every call fails but ``reset``, which opens a new connection.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    _wanted = Extra.STATE | Extra.RENDER | Extra.INFO
    _order = ""  # which environment is wanted, where the other side has to be asked for one
    _session = 0
    _connected = False
    _extras = Extra(0)
    _description = Description()
    _memory: SharedMemory | None = None
    _end: weakref.finalize[..., Any] | None = None

    @abstractmethod
    def _open(self) -> None:
        """Be ready for the first message of a new connection."""

    @abstractmethod
    def _exchange(self, asked: Kind, data: bytes) -> bytes:
        """Send a message of kind ``asked`` and wait for the answer."""

    def _share(self) -> SharedMemory | None:
        """The shared memory, once the spaces are known."""
        return None

    def close(self) -> None:
        """End the connection, and what was started for it."""
        self._hang_up()

    def _hang_up(self) -> None:
        self._connected = False
        if self._end is not None:
            self._end()

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Seen, Info]:
        super().reset(seed=seed)
        return self._reset(seed)

    def step(self, action: object) -> tuple[Seen, float, bool, bool, Info]:
        if (memory := self._memory) is not None:
            memory.action[...] = action
            known = self._ask(STEP).arrays
            info = self._known(known) if known else {}
            return memory.observation.copy(), *memory.read_outcome(), info
        answer = self._ask(STEP, self._action_port.send(action))
        try:
            observation, reward, terminated, truncated = read_result(answer)
        except ProtocolError as error:
            raise self._broken(str(error)) from error
        known = answer.arrays[3:]
        info = self._known(known) if known else {}
        return self._seen(observation), reward, terminated, truncated, info

    @property
    def has_state(self) -> bool:
        return Extra.STATE in self._extras

    def get_state(self) -> Arrays:
        return {_STATE: self._state()}

    def set_state(self, state: Arrays) -> None:
        self._set_state(np.asarray(state[_STATE], np.uint8))

    def describe(self) -> dict[str, str]:
        """What the environment says about itself."""
        return dict(self._description.about)

    def render(self) -> np.ndarray:
        """The picture that the other side makes; EnvironmentFailure when it makes none."""
        if Extra.RENDER not in self._extras:
            raise EnvironmentFailure(f"{self._peer()} makes no pictures")
        answer = self._ask(Kind.RENDER)
        if len(answer.arrays) != 1:
            raise self._broken("a PICTURE holds one array")
        return answer.arrays[0].copy()

    # -- for subclasses --------------------------------------------------------------------------

    def _begin(self) -> None:
        """The first connection; nothing is left when it cannot be made."""
        try:
            self._meet()
        except BaseException:
            self.close()
            raise

    def _reset(self, seed: int | None) -> tuple[Seen, Info]:
        if not self._connected:
            self._meet()
        try:
            answer = self._ask(Kind.RESET, seed_array(seed))
        except SessionLost:  # idle for too long, or the server was started again
            self._meet()
            answer = self._ask(Kind.RESET, seed_array(seed))
        if self._memory is not None:
            return self._memory.observation.copy(), self._known(answer.arrays)
        if not answer.arrays:
            raise self._broken("an OBSERVATION holds the observation")
        return self._seen(answer.arrays[0]), self._known(answer.arrays[1:])

    def _state(self) -> np.ndarray:
        """The bytes of the environment's state."""
        try:
            return bytes_of(self._ask(Kind.GET_STATE)).copy()
        except ProtocolError as error:
            raise self._broken(str(error)) from error

    def _set_state(self, state: np.ndarray) -> None:
        self._ask(Kind.SET_STATE, state)

    def _peer(self, asked: Kind | None = None) -> str:
        """The other side as messages call it, and what it was asked."""
        return "the other side"

    # -- the conversation ------------------------------------------------------------------------

    def _meet(self) -> None:
        """Open a connection: learn the spaces, which must not change in an environment's life."""
        self._session = 0
        self._open()
        self._connected = True
        try:
            message = self._ask(Kind.HELLO, *hello_arrays(self._wanted, self._order))
        except NotUnderstood:  # an older server, for which a HELLO is empty
            self._connected = True
            message = self._ask(Kind.HELLO)
        try:
            observation, action = read_spaces(message)
            self._extras, self._description = read_extras(message)
            observation = as_said(observation, self._description.observation)
            action = actions_as_said(action, self._description.action)
        except ProtocolError as error:
            raise self._broken(str(error)) from error
        known = getattr(self, "observation_space", None), getattr(self, "action_space", None)
        if known not in ((None, None), (observation, action)):
            raise self._broken("its spaces are others than before")
        self._session = message.session
        self.observation_space, self.action_space = observation, action
        self._action_port = port(action)
        self._memory = self._share() if Extra.MEMORY in self._extras else None
        shown = self._description
        self.render_mode = shown.render_mode
        if shown.render_modes:
            self.metadata = {
                "render_modes": list(shown.render_modes),
                "render_fps": shown.render_fps,
            }

    def _ask(self, asked: Kind, *arrays: np.ndarray) -> Message:
        """The answer to a message; EnvironmentFailure when there is none, or it is an ERROR."""
        if not self._connected:
            raise EnvironmentFailure(
                f"{self._peer()} has failed before: reset before the next {asked.name}", "crash"
            )
        try:
            session = self._session
            data = (
                encode(Message(asked, arrays, session)) if arrays else encode_empty(asked, session)
            )
            answer = decode(self._exchange(asked, data))
            if answer.kind is _ANSWERS[asked]:
                return answer
            if answer.kind is Kind.ERROR:
                self._refused(asked, *read_error(answer))
        except ProtocolError as error:
            raise self._broken(str(error)) from error
        except (EnvironmentFailure, ConfigError):
            self._connected = False
            raise
        raise self._broken(f"{answer.kind.name} is no answer to {asked.name}")

    def _refused(self, asked: Kind, fault: int, text: str) -> NoReturn:
        if fault == Fault.NO_SESSION:
            raise SessionLost(text)
        if fault == Fault.MALFORMED:
            raise NotUnderstood(f"{self._peer(asked)}: {text}")
        if fault == Fault.NOT_MADE:
            raise ConfigError(text)
        kind = KINDS_OF_FAILURE.get(fault, "raise")
        raise EnvironmentFailure(f"{self._peer(asked)}: {text}", kind)

    def _broken(self, text: str) -> EnvironmentFailure:
        self._connected = False
        return EnvironmentFailure(f"{self._peer()} broke the protocol: {text}")

    def _known(self, arrays: Sequence[np.ndarray]) -> Info:
        """The ``info`` in an answer."""
        try:
            return {**read_info(arrays)}
        except ProtocolError as error:
            raise self._broken(str(error)) from error

    def _seen(self, observation: np.ndarray) -> Seen:
        space: Space = self.observation_space
        try:
            if isinstance(space, spaces.Box):
                if observation.shape != space.shape or observation.dtype != space.dtype:
                    check_value(space, observation, "the observation")
                return observation.copy()
            check_value(space, observation, "the observation")
        except ProtocolError as error:
            raise self._broken(str(error)) from error
        return np.int64(observation) if isinstance(space, spaces.Discrete) else observation.copy()
