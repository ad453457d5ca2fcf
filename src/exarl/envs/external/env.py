"""ExaExternal-v0: an environment that is a program of the user's own."""

from __future__ import annotations

import math
import shlex
import weakref
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from exarl.envs.context import EnvContext
from exarl.envs.external.client import ClientEnv
from exarl.envs.external.launch import launch
from exarl.envs.external.program import Program, Transport
from exarl.envs.external.protocol import STEP, Kind
from exarl.errors import EnvironmentFailure

HEADER = Path(__file__).with_name("exarl_env.h")
"""The C header for the program's side."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds that an answer may take; None: as long as the program lives."""

    step: float | None = None
    reset: float | None = None  # also reading and setting the state, and making a picture
    start: float | None = None  # to the first answer

    def of(self, asked: Kind) -> float | None:
        """The limit of an answer to this kind of message."""
        if asked is STEP:
            return self.step
        return self.start if asked is Kind.HELLO else self.reset


class Partner(Protocol):
    """What a ``ProgramEnv`` needs of a ``Program``."""

    patience: float

    @property
    def connected(self) -> bool: ...

    def accept(self, timeout: float) -> bool: ...

    def ask(self, data: bytes, timeout: float | None) -> bytes: ...

    def failure(self, error: EOFError | TimeoutError) -> EnvironmentFailure: ...

    def close(self) -> None: ...


P = TypeVar("P", bound=Partner)


class ProgramEnv(ClientEnv, Generic[P]):
    """An environment that is a program which EXARL starts, for as long as it is needed.

    A program that has ended or is late is an EnvironmentFailure; it is ended with everything that it
    has started.
    """

    _program: P
    _timeouts: Timeouts

    @abstractmethod
    def _start(self) -> P:
        """Start the program."""

    def _failure(self, asked: Kind, error: EOFError | TimeoutError) -> EnvironmentFailure:
        """What to raise when there is no answer to a message of kind ``asked``."""
        return self._program.failure(error)

    def _open(self) -> None:
        self._hang_up()
        self._program = self._start()
        # Also when no one closes this environment: the program must not outlive it.
        self._end = weakref.finalize(self, self._program.close)
        start = self._timeouts.start
        if not self._program.connected and not self._program.accept(
            math.inf if start is None else start
        ):
            self._program.patience = 0.0
            raise EnvironmentFailure(
                f"{self._peer()} has not connected within {start:g} s", "timeout"
            )

    def _exchange(self, asked: Kind, data: bytes) -> bytes:
        timeout = self._timeouts.of(asked)
        try:
            return self._program.ask(data, timeout)
        except (EOFError, TimeoutError) as error:
            failure = self._failure(asked, error)
            self._program.patience = 0.0
            self._hang_up()
            raise failure from None


class ExternalEnv(ProgramEnv[Program]):
    """Runs ``command`` and lets it be the environment; docs/external.md says how it talks.

    command: the program and its words, as in a shell but without one. A word with a slash that
        names a file is made absolute, so that the program may run in another folder.
    transport: "socket" (the program connects to the Unix socket in EXARL_ADDRESS) or "stdio" (it talks
        over its standard input and output).
    timeout: seconds that an answer may take; null: as long as the program lives.
    start_timeout: seconds until the program must have connected and described its spaces.
    work_dir: the folder it runs in, made if need be, and where its output goes.
    input_files: files and folders, separated by commas, that are copied into a folder of its own, in
        which it runs; that is in work_dir, else in the environment's folder of the run.
    keep_folders: whether these folders are kept when their programs have ended.
    """

    def __init__(
        self,
        command: str,
        transport: Transport = "socket",
        timeout: float | None = None,
        start_timeout: float = 60.0,
        work_dir: str | None = None,
        input_files: str | None = None,
        keep_folders: bool = False,
        *,
        context: EnvContext | None = None,
    ) -> None:
        words = split_command(command)
        if transport not in ("socket", "stdio"):
            raise ValueError(f"transport is 'socket' or 'stdio', not {transport!r}")
        check_seconds(timeout=timeout, start_timeout=start_timeout)
        self._timeouts = Timeouts(timeout, timeout, start_timeout)
        self._launch = launch(words, transport, work_dir, input_files, keep_folders, context)
        self._begin()

    def _start(self) -> Program:
        return self._launch.start()

    def _peer(self, asked: Kind | None = None) -> str:
        return f"'{self._launch.command[0]}'"


def check_seconds(**limits: object) -> None:
    """ValueError where a time limit is neither None nor a number above 0."""
    for name, value in limits.items():
        if value is not None and not (isinstance(value, int | float) and value > 0):
            raise ValueError(f"{name} is a number of seconds above 0, not {value!r}")


def split_command(command: str) -> list[str]:
    """The words of a command, files among them made absolute; ValueError when there are none."""
    try:
        words = shlex.split(str(command))
    except ValueError as error:
        raise ValueError(f"command {command!r}: {error}") from error
    if not words:
        raise ValueError("command is empty")
    return [str(Path(w).absolute()) if "/" in w and Path(w).is_file() else w for w in words]
