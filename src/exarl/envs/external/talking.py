"""An environment that lives behind messages, whoever carries them."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.envs.external.protocol import (
    Fault,
    Kind,
    Message,
    ProtocolError,
    decode,
    encode,
    read_error,
    read_result,
    reset_message,
)
from exarl.envs.external.spaces import Space, check_value, port, read_spaces
from exarl.errors import EnvironmentFailure

_ANSWERS = {Kind.HELLO: Kind.SPACES, Kind.RESET: Kind.OBSERVATION, Kind.STEP: Kind.RESULT}


class SessionLost(EnvironmentFailure):
    """The other side does not know this conversation any more."""


class TalkingEnv(gymnasium.Env[Any, Any]):
    """Asks HELLO, RESET and STEP of the other side, and checks what it answers.

    A subclass carries the messages (``_open``, ``_exchange``) and calls ``_begin`` when it is made.
    What ends its line goes into ``_end``, so that nothing outlives this environment, closed or not.
    After a failure, ``reset`` begins a new conversation.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    _session = 0
    _fresh = False  # whether there is a conversation
    _end: weakref.finalize[..., Any] | None = None

    @abstractmethod
    def _open(self) -> None:
        """Be ready for the first message of a new conversation."""

    @abstractmethod
    def _exchange(self, data: bytes) -> bytes:
        """Send a message and wait for the answer."""

    def close(self) -> None:
        """End the conversation."""
        self._fresh = False
        if self._end is not None:
            self._end()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if not self._fresh:
            self._meet()
        try:
            message = self._ask(reset_message(seed, self._session))
        except SessionLost:  # idle for too long, or the server was started again
            self._meet()
            message = self._ask(reset_message(seed, self._session))
        if len(message.arrays) != 1:
            raise self._broken("an OBSERVATION holds one array")
        return self._see(message.arrays[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._fresh:
            raise EnvironmentFailure("the connection is lost: reset before the next step")
        array = self._action_port.send(action)
        message = self._ask(Message(Kind.STEP, (array,), self._session))
        try:
            observation, reward, terminated, truncated = read_result(message)
        except ProtocolError as error:
            raise self._broken(str(error)) from error
        return self._see(observation), reward, terminated, truncated, {}

    def _begin(self) -> None:
        """The first conversation; nothing is left when it cannot be had."""
        try:
            self._meet()
        except BaseException:
            self.close()
            raise

    def _meet(self) -> None:
        """Begin a conversation: learn the spaces, which must not change in an environment's life."""
        self._session = 0
        self._open()
        self._fresh = True
        message = self._ask(Message(Kind.HELLO))
        try:
            observation, action = read_spaces(message)
        except ProtocolError as error:
            raise self._broken(str(error)) from error
        known = getattr(self, "observation_space", None), getattr(self, "action_space", None)
        if known not in ((None, None), (observation, action)):
            raise self._broken("its spaces are others than before")
        self._session = message.session
        self.observation_space, self.action_space = observation, action
        self._action_port = port(action)

    def _ask(self, message: Message) -> Message:
        try:
            answer = decode(self._exchange(encode(message)))
            if answer.kind is Kind.ERROR:
                self._refused(*read_error(answer))
        except ProtocolError as error:
            raise self._broken(str(error)) from error
        except EnvironmentFailure:
            self._fresh = False
            raise
        if answer.kind is not _ANSWERS[message.kind]:
            raise self._broken(f"{answer.kind.name} is no answer to {message.kind.name}")
        return answer

    def _refused(self, fault: int, text: str) -> None:
        if fault == Fault.NO_SESSION:
            raise SessionLost(text)
        raise EnvironmentFailure(text)

    def _broken(self, text: str) -> EnvironmentFailure:
        self._fresh = False
        return EnvironmentFailure(f"{self._peer()} broke the protocol: {text}")

    def _peer(self) -> str:
        return "the other side"

    def _see(self, observation: np.ndarray) -> Any:
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
