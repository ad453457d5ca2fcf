"""An environment in a process of its own, as the rank sees it.

A crash, a leak, a hang or a library that cannot be loaded twice stays in that process. It is a fresh
Python, not a fork, since nothing may fork where MPI runs; observations come back through shared memory.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import mmap
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.envs import child, wire
from exarl.envs.base import ExaEnv
from exarl.envs.context import EnvContext, temporary_context
from exarl.envs.registration import asks_for, creator_of, find_spec
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.types import Arrays

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from exarl.envs.worker import main; main(sys.argv[2:])"
)
_STARTING_S = 120.0  # that a limit on reset leaves a new Python for its imports, at least
_CLOSING_S = 5.0
_NAMES = {
    wire.MAKE: "start",
    wire.RESET: "reset",
    wire.STEP: "step",
    wire.GET_STATE: "get_state",
    wire.SET_STATE: "set_state",
    wire.RENDER: "render",
    wire.CLOSE: "close",
}


@dataclass(frozen=True)
class Limits:
    """Seconds a call may take; None: for ever."""

    step: float | None = None
    reset: float | None = None  # also reading and setting the state, and making a picture

    def of(self, call: int) -> float | None:
        if call == wire.STEP:
            return self.step
        if call == wire.CLOSE:
            return _CLOSING_S
        if call == wire.MAKE and self.reset is not None:
            return max(self.reset, _STARTING_S)
        return self.reset

    def name(self, call: int) -> str:
        """The limit of a call as the user knows it."""
        limit = self.of(call)
        known = {self.step: "step_timeout=", self.reset: "reset_timeout="}
        return f"{known.get(limit, '')}{limit:g} s"


class IsolatedEnv(ExaEnv):
    """Steps an environment that lives in another process. ``info`` stays there.

    Failures of any kind are an EnvironmentFailure of that kind. After a crash or a timeout the process
    is gone, and with it whatever programs it had started; every further call fails.
    """

    def __init__(
        self, process: Process, looks: Mapping[str, Any], render_mode: str | None, id: str
    ) -> None:
        self._process = process
        observation, action = map(wire.read_space, looks["spaces"])
        assert isinstance(observation, gymnasium.spaces.Box)
        self.observation_space, self.action_space = observation, action
        self.metadata, self.render_mode = looks["metadata"], render_mode
        self.spec = find_spec(id)
        self._about: dict[str, str] = looks["about"]
        self._memory = process.map(observation, action)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if options:
            raise ValueError("an isolated environment takes no options of reset")
        self._process.call(wire.RESET, wire.SEED.pack(wire.NO_SEED if seed is None else seed))
        return self._memory.observation.copy(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._memory.action[...] = action
        reward, terminated, truncated = wire.OUTCOME.unpack(self._process.call(wire.STEP))
        return self._memory.observation.copy(), reward, terminated, truncated, {}

    def describe(self) -> dict[str, str]:
        """What the environment says of itself."""
        return self._about

    def render(self) -> Any:
        return decode_arrays(self._process.call(wire.RENDER))["picture"]

    def close(self) -> None:
        self._process.close()


class SnapshotIsolatedEnv(IsolatedEnv):
    """One that can give its state."""

    def get_state(self) -> Arrays:
        return decode_arrays(self._process.call(wire.GET_STATE))

    def set_state(self, state: Arrays) -> None:
        self._process.call(wire.SET_STATE, encode_arrays(state))


def isolate(
    id: str,
    kwargs: Mapping[str, Any],
    *,
    context: EnvContext | None = None,
    output: Path | None = None,
    limits: Limits | None = None,
    render_mode: str | None = None,
    who: str | None = None,
) -> tuple[IsolatedEnv, int | None]:
    """The environment in a process of its own, and the limit its registration asks for.

    ``output`` receives what it prints (None: this process's stderr), ``who`` is how its failures
    call it. ConfigError when it cannot be made, as from ``make_env``.
    """
    spec, module = _portable(id)
    own = None
    if context is None and asks_for(id, "context"):
        context = own = temporary_context()
    order = {
        "id": id,
        "spec": spec,
        "module": module,
        "kwargs": dict(kwargs),
        "context": context.to_json() if context is not None else None,
        "render_mode": render_mode,
    }
    try:
        message = json.dumps(order).encode()
    except TypeError as error:
        raise ConfigError(f"env_isolation process needs plain parameters: {error}") from error
    process = Process(who or f"environment '{id}'", output, limits or Limits())
    try:
        looks = json.loads(process.call(wire.MAKE, message))
        kind = SnapshotIsolatedEnv if looks["snapshots"] else IsolatedEnv
        env = kind(process, looks, render_mode, id)
    except BaseException:
        process.kill()
        if own is not None:
            own.remove()
        raise
    if own is not None:
        own.remove_with(env)
    return env, looks["limit"]


class Process:
    """The process of one environment, its line and its memory."""

    def __init__(self, who: str, output: Path | None, limits: Limits) -> None:
        self._who = who
        self._output = output
        self._limits = limits
        ours, theirs = socket.socketpair()
        self._line = wire.Line(ours)
        self._file = _nameless_file()
        with theirs:
            fds = (theirs.fileno(), self._file)
            words = [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), *map(str, fds)]
            self._process: Any = child.start_kept(words, output, pass_fds=fds)

    def map(
        self, observation: gymnasium.spaces.Box, action: gymnasium.spaces.Space[Any]
    ) -> wire.Memory:
        """The shared memory, which the process has made as large as its spaces need."""
        mapping = mmap.mmap(self._file, wire.Memory.size(observation, action))
        os.close(self._file)
        self._file = -1
        return wire.Memory.over(mapping, observation, action)

    def call(self, what: int, payload: bytes = b"") -> bytes:
        """Ask and wait for the answer; EnvironmentFailure when there is none, or a bad one."""
        if self._process is None:
            raise EnvironmentFailure(f"{self._who} has failed before and is not there", "crash")
        try:
            self._line.send(what, payload)
            answer, payload = self._line.receive(self._limits.of(what), self._alive)
        except TimeoutError:
            self._show_stack()
            self.kill()
            raise EnvironmentFailure(
                f"{self._who}: {_NAMES[what]} took more than {self._limits.name(what)}"
                f"{self._see_output()}",
                "timeout",
            ) from None
        except wire.Gone:
            how = child.how_it_ended(self._end_of_crash())
            raise EnvironmentFailure(
                f"{self._who}: its process {how} in {_NAMES[what]}{self._see_output()}", "crash"
            ) from None
        if answer == wire.DONE:
            return payload
        words = json.loads(payload)
        if words["kind"] == "make":
            raise ConfigError(words["message"])
        raise EnvironmentFailure(
            f"{self._who}: {_NAMES[what]}: {words['message']}{self._see_output()}", words["kind"]
        )

    def close(self) -> None:
        """End the process: politely if it is well, with all that it has started in any case."""
        if self._process is None:
            return
        with contextlib.suppress(EnvironmentFailure, ConfigError):
            self.call(wire.CLOSE)
            deadline = time.monotonic() + _CLOSING_S
            while not child.ended(self._process) and time.monotonic() < deadline:
                time.sleep(0.002)
        self.kill()

    def kill(self) -> int:
        """End it now; its return code."""
        process, self._process = self._process, None
        self._line.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        return child.kill_all(process) if process is not None else 0

    def _end_of_crash(self) -> int:
        """The return code of a process that has let go of its end, or is about to end."""
        deadline = time.monotonic() + 1.0
        while not child.ended(self._process) and time.monotonic() < deadline:
            time.sleep(0.002)
        return self.kill()

    def _alive(self) -> bool:
        return not child.ended(self._process)

    def _show_stack(self) -> None:
        """Have a hanging process write down where it is, if it still can."""
        self._process.send_signal(wire.STACK_SIGNAL)
        time.sleep(0.05)

    def _see_output(self) -> str:
        return f"; see {self._output}" if self._output is not None else ""


def _portable(id: str) -> tuple[str | None, str | None]:
    """The environment's registration as text, if it can be; and the module to import for it.

    ConfigError when a new Python could not find the environment.
    """
    spec = find_spec(id)
    creator, given = _unwrapped(creator_of(spec))
    entry = spec.entry_point
    module = getattr(creator, "__module__", None)
    name = getattr(creator, "__qualname__", "")
    if not isinstance(entry, str):
        entry = None if "<" in name or module in (None, "__main__") else f"{module}:{name}"
    if entry is not None:
        with contextlib.suppress(ValueError, TypeError):
            spec = replace(spec, entry_point=entry, kwargs={**given, **spec.kwargs})
            return replace(spec, vector_entry_point=None).to_json(), None
    if module in (None, "__main__") or "<locals>" in name:
        raise ConfigError(
            f"env_isolation process cannot find '{id}' in a new Python: register it as"
            " 'module:Class', from a module that can be imported"
        )
    return None, module


def _unwrapped(creator: Any) -> tuple[Any, dict[str, Any]]:
    """What a ``functools.partial`` calls in the end, and the arguments it gives, by name."""
    given: dict[str, Any] = {}
    while isinstance(creator, partial):
        names = [
            name
            for name, parameter in inspect.signature(creator.func).parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        if len(creator.args) > len(names):
            raise ConfigError(
                "env_isolation process cannot hand over a functools.partial with arguments that have"
                " no names"
            )
        given = {**dict(zip(names, creator.args, strict=False)), **creator.keywords, **given}
        creator = creator.func
    return creator, given


def _nameless_file() -> int:
    """A file in memory that has no name, so that nothing is left of it when everybody is killed."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("exarl-env")
    with tempfile.TemporaryFile() as file:  # unlinked from the beginning
        return os.dup(file.fileno())
