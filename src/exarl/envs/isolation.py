"""An environment in a process of its own, as the rank sees it.

A crash, a leak, a hang or a library that cannot be loaded twice stays in that process. It is a new
Python (``worker.py``), not a fork, since nothing may fork where MPI runs. It is asked like any external
program, and shares memory with the rank for observations and actions.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.envs.base import Info
from exarl.envs.context import EnvContext, temporary_context
from exarl.envs.external.client import Seen
from exarl.envs.external.env import ProgramEnv, Timeouts
from exarl.envs.external.extras import Extra
from exarl.envs.external.program import Program
from exarl.envs.external.protocol import Fault, Kind
from exarl.envs.external.shared_memory import SharedMemory, nameless_file
from exarl.envs.registration import asks_for, creator_of, find_spec
from exarl.envs.worker import STACK_SIGNAL, UNLIMITED
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.types import Arrays

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from exarl.envs.worker import main; main()"
)
_STARTING_S = 120.0  # a limit on reset gives a new Python at least this long for its imports
_CLOSING_S = 5.0
_NAMES = {
    Kind.HELLO: "start",
    Kind.RESET: "reset",
    Kind.STEP: "step",
    Kind.GET_STATE: "get_state",
    Kind.SET_STATE: "set_state",
    Kind.RENDER: "render",
}


class IsolatedEnv(ProgramEnv[Program]):
    """Steps an environment that lives in another process; ``info`` stays there unless it is wanted.

    Failures of any kind are an EnvironmentFailure of that kind. After a crash or a timeout the process
    and all programs it had started are gone.
    """

    _wanted = Extra.STATE | Extra.RENDER | Extra.MEMORY

    def __init__(
        self,
        id: str,
        order: str,
        timeouts: Timeouts,
        output: Path | None,
        who: str,
        info: bool = False,
    ) -> None:
        self._order, self._output, self._who = order, output, who
        if info:
            self._wanted |= Extra.INFO
        start = None if timeouts.reset is None else max(timeouts.reset, _STARTING_S)
        self._timeouts = replace(timeouts, start=start)
        self._begin()
        self.spec = find_spec(id)

    @property
    def max_episode_steps(self) -> int | None:
        """The limit that the environment's registration asks for, and that is not kept here."""
        return self._description.max_episode_steps

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Seen, Info]:
        if options:
            raise ValueError("an isolated environment takes no options of reset")
        return self._reset(seed)

    def get_state(self) -> Arrays:
        return decode_arrays(self._state())

    def set_state(self, state: Arrays) -> None:
        self._set_state(np.frombuffer(encode_arrays(state), np.uint8))

    def _start(self) -> Program:
        self._file = nameless_file()
        self._closing_file = weakref.finalize(self, os.close, self._file)
        return Program(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path)],
            transport="pair",
            output=self._output,
            memory=self._file,
            max_bytes=UNLIMITED,
            last_moment=1.0,
            patience=_CLOSING_S,
            grace=0.0,
        )

    def _share(self) -> SharedMemory:
        memory = SharedMemory.over(self._file, self.observation_space, self.action_space)
        self._closing_file()
        return memory

    def _failure(self, asked: Kind, error: EOFError | TimeoutError) -> EnvironmentFailure:
        call, limit = _NAMES[asked], self._timeouts.of(asked)
        if isinstance(error, TimeoutError):
            self._program.signal(STACK_SIGNAL)  # it writes down where it hangs, if it still can
            time.sleep(0.05)
            option = "step_timeout=" if asked is Kind.STEP else "reset_timeout="
            name = "" if asked is Kind.HELLO and limit != self._timeouts.reset else option
            what = f"{call} took more than {name}{limit:g} s"
            return EnvironmentFailure(f"{self._who}: {what}{self._see_output()}", "timeout")
        how = f"its process {self._program.how_it_ended()} in {call}"
        return EnvironmentFailure(f"{self._who}: {how}{self._see_output()}", "crash")

    def _refused(self, asked: Kind, fault: int, text: str) -> NoReturn:
        where = "" if fault == Fault.NOT_MADE else self._see_output()
        super()._refused(asked, fault, f"{text}{where}")

    def _peer(self, asked: Kind | None = None) -> str:
        return self._who if asked is None else f"{self._who}: {_NAMES[asked]}"

    def _see_output(self) -> str:
        return f"; see {self._output}" if self._output is not None else ""


def isolate(
    id: str,
    kwargs: Mapping[str, object],
    *,
    context: EnvContext | None = None,
    output: Path | None = None,
    timeouts: Timeouts | None = None,
    render_mode: str | None = None,
    who: str | None = None,
    info: bool = False,
    drop: Sequence[str] = (),
    weights: Sequence[float] = (),
    preferences: bool = False,
) -> tuple[IsolatedEnv, int | None]:
    """The environment in a process of its own, and the limit its registration asks for.

    ``output`` receives what it prints (None: this process's stderr), ``who`` is its name in messages
    about failures; ``info``: the numbers in its info come along; the others are those of ``make_env``.
    ConfigError when it cannot be made, as from ``make_env``.
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
        "drop": list(drop),
        "weights": list(weights),
        "preferences": preferences,
    }
    try:
        text = json.dumps(order)
    except TypeError as error:
        raise ConfigError(f"env_isolation process needs plain parameters: {error}") from error
    try:
        who = who or f"environment '{id}'"
        env = IsolatedEnv(id, text, timeouts or Timeouts(), output, who, info)
    except BaseException:
        if own is not None:
            own.remove()
        raise
    if own is not None:
        own.remove_with(env)
    return env, env.max_episode_steps


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


def _unwrapped(creator: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
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
