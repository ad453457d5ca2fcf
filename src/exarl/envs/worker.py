"""The program of an isolated environment: Python, the protocol of external programs, and signals.

``isolation.py`` starts it. Its HELLO says which environment to make.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import sys
import threading

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymSpec

from exarl.comm.leaving import leave
from exarl.envs.context import EnvContext
from exarl.envs.external.extras import read_hello
from exarl.envs.external.host import Answering, answer_all, explained
from exarl.envs.external.link import ADDRESS, Link, connect
from exarl.envs.external.protocol import decode, encode, error_message
from exarl.envs.external.shared_memory import MEMORY
from exarl.envs.external.spaces import float_port
from exarl.envs.guard import FAILING
from exarl.envs.joint import joint_of
from exarl.envs.registration import make_env
from exarl.errors import ConfigError
from exarl.registry import import_named

STACK_SIGNAL = signal.SIGUSR2
"""Asks a worker for the stacks of all its threads, in its output."""

UNLIMITED = 1 << 62
"""Bytes of a message: the state of an environment may be large, and both sides are the user's."""

_PATIENCE_S = 0.2  # for threads that the environment left, once it is closed


def main() -> None:
    """Serve the environment that is asked for, until the rank closes it or is gone."""
    # A stop of the run is for its rank to handle, which may still ask for this environment's state.
    # Handlers, unlike SIG_IGN, are not inherited by programs started from here.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    memory = int(os.environ.pop(MEMORY))
    link = connect(os.environ.pop(ADDRESS), UNLIMITED)
    threading.Thread(target=_end_with_rank, args=(link.fileno(),), daemon=True).start()
    with contextlib.suppress(EOFError):
        _serve(link, memory)
    leave(0, _PATIENCE_S)


def _serve(link: Link, memory: int) -> None:
    """Make the environment that the first message asks for, and answer for it."""
    hello = link.receive()
    try:
        answering = _made(read_hello(decode(hello))[1], memory)
    except FAILING as error:
        link.send(encode(error_message(*explained(error, at_start=True))))
        return
    answer_all(link, answering, hello)


def _made(order: str, memory: int) -> Answering:
    """The environment of an order that ``isolation.py`` wrote."""
    data = json.loads(order)
    id = enter(data["id"], data["spec"], data["module"])
    context = data["context"] and EnvContext.from_json(data["context"])
    how = {name: data[name] for name in ("render_mode", "drop", "weights", "preferences")}
    env, limit = make_env(id, data["kwargs"], context=context, **how)
    if joint_of(env) is not None:
        env.close()
        raise ConfigError(f"env_isolation process: '{id}' has several agents, which need inline")
    try:
        observation = float_port(env.observation_space)
        return Answering(env, observation=observation, announced_limit=limit, memory=memory)
    except ValueError as error:
        raise ConfigError(f"env_isolation process: {error}") from error


def enter(id: str, spec: str | None, module: str | None) -> str:
    """Make ``id`` mean here what it means to the rank; its name in the registry."""
    prefix, _, name = id.rpartition(":")
    for needed in (prefix, module):
        if needed:
            import_named(needed)  # which registers what it has
    if spec is not None:
        gymnasium.registry[name] = GymSpec.from_json(spec)
    return name


def _end_with_rank(connection: int) -> None:
    """Wait until the rank is gone, then end this process and the programs it has started."""
    poll = select.poll()
    poll.register(connection, 0)  # nothing but the closing of the other end
    poll.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
