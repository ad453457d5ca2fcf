"""The client of ``ExaClient-v0``: for a solver or an instrument that owns its loop.

    with ExaClient(observation_space, action_space) as client:
        while client.begin_episode():
            ...
            action = client.get_action(observation)
            ...
            client.log_reward(reward)
            ...
            client.end_episode(observation)

EXARL asks, as it asks any external program; this turns what it asks for into these calls.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from exarl.comm.join_key import key_of
from exarl.envs.base import Space
from exarl.envs.external.extras import Description, Extra, info_arrays, read_hello, with_extras
from exarl.envs.external.link import ADDRESS
from exarl.envs.external.protocol import (
    Kind,
    Message,
    ProtocolError,
    decode,
    encode,
    result_message,
    seed_of,
)
from exarl.envs.external.spaces import (
    action_port,
    check_value,
    original,
    port,
    spaces_message,
)
from exarl.envs.external.stream import UNIX, Stream, dial
from exarl.errors import ConfigError, ExarlError

_FAREWELL_S = 5.0
_EVERY_S = 0.2  # between two attempts to connect


class Closed(ExarlError):
    """EXARL has ended, or is gone; ``with ExaClient(...)`` ends quietly with it."""


class ExaClient:
    """One simulation or instrument, which asks EXARL for actions when it needs them.

    ``address`` is that of ``ExaClient-v0``: ``unix:PATH`` or HOST:PORT, the latter with the key in
    ``key_file`` or EXARL_JOIN_KEY. Without an address it is the one that EXARL gave to this program
    when it started it. The constructor tries for ``patience`` seconds to connect. ``about`` are texts
    that describe the environment, by name. With MPI, only rank 0 has a client.

    Everything sent is kept until EXARL reads it, so that only ``begin_episode`` and ``get_action``
    wait. Both raise ``Closed`` or return False once EXARL has ended.
    """

    seed: int | None = None
    """Of the present episode; None where EXARL gave none."""
    in_time: bool = True
    """Whether the last ``get_action`` returned EXARL's answer, and not the fallback."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        address: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        patience: float = 60.0,
        about: Mapping[str, str] | None = None,
    ) -> None:
        self._observation, self._action = port(observation_space), action_port(action_space)
        self._about, self._own_actions = dict(about or {}), original(action_space)
        self._running = self._told = False
        self._owed = 0  # actions that have not come yet
        self._taken: np.ndarray | None = None  # the last action, if it was not EXARL's
        self._reward, self._info = 0.0, dict[str, float]()
        self._session = 0
        self._stream = _connect(address or os.environ.get(ADDRESS), key_file, patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self.close()
        return isinstance(error, Closed)

    def begin_episode(self) -> bool:
        """Wait until EXARL wants an episode; False when it wants no more."""
        self._check(not self._running, "begin_episode before end_episode")
        try:
            while (message := self._next(None)).kind is not Kind.RESET:
                pass  # answers to observations of the last episode, too late
        except Closed:
            return False
        self.seed, self._reward, self._owed, self._taken = seed_of(message), 0.0, 0, None
        self._info = {}
        self._running, self._told = True, False
        return True

    def get_action(
        self, observation: object, timeout: float | None = None, fallback: object = None
    ) -> Any:
        """The action for ``observation``, for which EXARL receives the rewards logged from now on.

        If there is no answer within ``timeout`` seconds, it is ``fallback``, and EXARL is told that
        this action was taken instead of its own.
        """
        if timeout is not None and fallback is None:
            raise ValueError("get_action with a timeout needs a fallback, the action to take then")
        deadline = None if timeout is None else time.monotonic() + timeout
        self._tell(observation)
        while self._owed:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                message = self._next(left)
            except TimeoutError:
                self._taken, self.in_time = self._action.send(fallback), False
                return fallback
            self._count(message)
        self._taken, self.in_time = None, True
        check_value(self._action.space, message.arrays[0], "the action")
        return self._action.receive(message.arrays[0])

    def log_action(self, observation: object, action: object) -> None:
        """Tell EXARL that ``action`` is taken after ``observation``, without asking it."""
        taken = self._action.send(action)
        self._tell(observation)
        self._taken = taken

    def log_reward(self, reward: float) -> None:
        """Add to the reward of the last action."""
        self._reward += float(reward)

    def log_info(self, **numbers: float) -> None:
        """Numbers for the ``info`` of the step that the last action makes."""
        self._info |= numbers

    def end_episode(self, observation: object, *, truncated: bool = False) -> None:
        """End the episode: by its own rules, or ``truncated`` by a limit."""
        self._check(self._told, "end_episode before get_action")
        self._tell(observation, not truncated, truncated)
        self._running = self._told = False

    def close(self) -> None:
        """Hang up, after what EXARL has still to be told."""
        try:
            self._stream.flush(_FAREWELL_S)
        except (EOFError, ProtocolError):
            pass
        finally:
            self._stream.close()

    # -- the conversation -------------------------------------------------------------------------

    def _tell(self, observation: object, terminated: bool = False, truncated: bool = False) -> None:
        """Send an observation: the first of the episode, or what the last action led to."""
        self._check(self._running, "get_action, log_action and end_episode are within an episode")
        self._drain()
        seen = self._observation.send(observation)
        info = info_arrays(self._info)
        if not self._told:
            message = Message(Kind.OBSERVATION, (seen, *info), self._session)
        else:
            message = result_message(seen, self._reward, terminated, truncated, self._session)
            arrays = (*message.arrays, *info)
            if self._taken is not None:
                message = Message(Kind.ACTED, (self._taken, *arrays), self._session)
            else:
                message = message._replace(arrays=arrays)
        self._post(message)
        self._told, self._reward, self._taken, self._info = True, 0.0, None, {}
        self._owed += not (terminated or truncated)

    def _drain(self) -> None:
        """Take note of late answers."""
        while self._owed:
            try:
                self._count(self._next(0.0))
            except TimeoutError:
                return

    def _count(self, message: Message) -> None:
        if message.kind is not Kind.STEP or len(message.arrays) != 1:
            raise ProtocolError(f"a {message.kind.name} within an episode")
        self._owed -= 1

    def _next(self, timeout: float | None) -> Message:
        """What EXARL says next, within ``timeout`` seconds; its HELLO is answered here."""
        while True:
            try:
                message = decode(self._stream.receive(timeout))
            except EOFError as error:
                raise Closed("EXARL is gone") from error
            if message.kind is Kind.CLOSE:
                raise Closed("EXARL has ended")
            self._session = message.session
            if message.kind is not Kind.HELLO:
                return message
            self._describe(message)

    def _describe(self, hello: Message) -> None:
        wanted, _ = read_hello(hello)
        if Extra.LOOP not in wanted:
            raise ConfigError("a program that owns its loop is used with --env ExaClient-v0")
        answer = spaces_message(self._observation.space, self._action.space, hello.session)
        offered = wanted & (Extra.INFO | Extra.LOOP)
        description = Description(about=self._about, action=self._own_actions)
        self._post(with_extras(answer, offered, description))

    def _post(self, message: Message) -> None:
        try:
            self._stream.post(encode(message))
        except EOFError as error:
            raise Closed("EXARL is gone") from error

    def _check(self, right: bool, what: str) -> None:
        if not right:
            raise ExarlError(f"not in this order: {what}")


def _connect(
    address: str | None, key_file: str | os.PathLike[str] | None, patience: float
) -> Stream:
    """Connect to ``address``, trying for ``patience`` seconds; ConfigError when that is in vain."""
    if not address:
        raise ConfigError(
            f"no address: give one ('unix:PATH' or HOST:PORT), or let EXARL start this program, which"
            f" sets {ADDRESS} (ExaClient-v0 --command)"
        )
    file = None if key_file is None else Path(key_file).expanduser()
    key = None if address.startswith(UNIX) else key_of(os.environ, file)
    until = time.monotonic() + patience

    while True:
        try:
            return dial(address, key)
        except (OSError, EOFError) as error:
            if time.monotonic() > until:
                raise ConfigError(f"no EXARL listens at {address}: {error}") from error
        time.sleep(_EVERY_S)
