"""The environment's side in Python: a Gymnasium environment answers messages.

    python -m exarl.envs.external.host ID ['{"parameter": value}']

is a program for ``ExaExternal-v0``, and what ``exarl serve-env`` starts for each client. A solver in
Python calls ``host(env)`` itself.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from exarl.envs.external.link import ADDRESS, Link, connect
from exarl.envs.external.protocol import (
    Fault,
    Kind,
    Message,
    ProtocolError,
    decode,
    encode,
    error_message,
    result_message,
    seed_of,
)
from exarl.envs.external.spaces import action_port, check_value, port, spaces_message
from exarl.envs.guard import FAILING, close_at_end, in_words
from exarl.envs.outcome import as_number
from exarl.errors import ConfigError

log = logging.getLogger(__name__)


def host(env: gymnasium.Env[Any, Any], link: Link | None = None) -> None:
    """Answer for ``env`` until the other side closes or is gone; the environment is closed then.

    ``link`` is by default the one that EXARL_ADDRESS names. Whatever the environment raises is
    reported to the other side, which may reset it.
    """
    link = open_link() if link is None else link
    answering = Answering(env)
    try:
        while True:
            answer = answering.to(link.receive())
            if answer is None:
                return
            link.send(encode(answer))
    except EOFError:
        return
    finally:
        link.close()
        close_at_end(0, env)


def open_link() -> Link:
    """The connection to whoever started this program; ConfigError when there is none."""
    address = os.environ.get(ADDRESS)
    if not address:
        raise ConfigError(f"{ADDRESS} is not set: this program is started by ExaExternal-v0")
    return connect(address)


class Answering:
    """An environment and where it stands: what to answer to each message."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env
        self._observation = port(env.observation_space)
        self._action = action_port(env.action_space)
        self._begun = False

    def to(self, data: bytes) -> Message | None:
        """The answer to a message; None to CLOSE."""
        session = 0
        try:
            message = decode(data)
            session = message.session
            if message.kind is Kind.CLOSE:
                return None
            return self._answer(message)
        except ProtocolError as error:
            return error_message(Fault.MALFORMED, str(error), session)
        except FAILING as error:
            log.exception("the environment failed")
            self._begun = False
            text = f"the environment raised {in_words(error)}"
            return error_message(Fault.FAILED, text, session)

    def _answer(self, message: Message) -> Message:
        session = message.session
        match message.kind:
            case Kind.HELLO:
                return spaces_message(self._observation.space, self._action.space, session)
            case Kind.RESET:
                observation, _ = self._env.reset(seed=seed_of(message))
                self._begun = True
                return Message(Kind.OBSERVATION, (self._observation.send(observation),), session)
            case Kind.STEP:
                return self._step(message)
        raise ProtocolError(f"{message.kind.name} is not for an environment")

    def _step(self, message: Message) -> Message:
        if not self._begun:
            raise ProtocolError("a STEP before the first RESET, or after a failure")
        if len(message.arrays) != 1:
            raise ProtocolError("a STEP holds one array, the action")
        array = message.arrays[0]
        check_value(self._action.space, array, "the action")
        observation, reward, terminated, truncated, _ = self._env.step(self._action.receive(array))
        seen = self._observation.send(observation)
        return result_message(
            seen, as_number(reward), bool(terminated), bool(truncated), message.session
        )


def main(words: list[str]) -> None:
    """Serve the environment that the words name."""
    from exarl.envs.registration import make_env

    id, *rest = words
    env, limit = make_env(id, json.loads(rest[0]) if rest else {})
    # A client has no part in this registration: the limit is kept here.
    host(env if limit is None else TimeLimit(env, limit))


if __name__ == "__main__":
    main(sys.argv[1:])
