"""ExaExternal-v0: an environment that is a program of the user's own."""

from __future__ import annotations

import shlex
import weakref
from pathlib import Path

from exarl.envs.external.program import Program, Transport
from exarl.envs.external.talking import TalkingEnv
from exarl.errors import EnvironmentFailure

HEADER = Path(__file__).with_name("exarl_env.h")
"""The C header for the program's side."""


class ExternalEnv(TalkingEnv):
    """Runs ``command`` and lets it be the environment; docs/external.md says how it talks.

    command: the program and its words, as in a shell but without one. A word with a slash that
        names a file is made absolute, so that the program may run in another folder.
    transport: "socket" (the program connects to the Unix socket in EXARL_ADDRESS) or "stdio" (it talks
        over its standard input and output).
    timeout: seconds that an answer may take; null waits for as long as the program lives.
    start_timeout: seconds until the program must have connected and described its spaces.
    work_dir: the folder it runs in, made if need be, and where its output goes.
    """

    def __init__(
        self,
        command: str,
        transport: Transport = "socket",
        timeout: float | None = None,
        start_timeout: float = 60.0,
        work_dir: str | None = None,
    ) -> None:
        self._command = split_command(command)
        self._transport: Transport = transport
        if transport not in ("socket", "stdio"):
            raise ValueError(f"transport is 'socket' or 'stdio', not {transport!r}")
        for name, value in (("timeout", timeout), ("start_timeout", start_timeout)):
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise ValueError(f"{name} is a number of seconds above 0, not {value!r}")
        self._timeout, self._start_timeout = timeout, start_timeout
        self._work_dir = Path(work_dir).expanduser().absolute() if work_dir else None
        self._begin()

    def _open(self) -> None:
        self.close()
        self._ready = False
        self._program = Program(self._command, transport=self._transport, work_dir=self._work_dir)
        # Also when nobody closes this environment: the program must not outlive it.
        self._end = weakref.finalize(self, self._program.close)
        if not self._program.accept(self._start_timeout):
            self._program.patience = 0.0
            raise EnvironmentFailure(
                f"{self._peer()} has not connected within {self._start_timeout:g} s", "timeout"
            )

    def _exchange(self, data: bytes) -> bytes:
        # The first answer comes when the program is ready, which is part of its start.
        timeout = self._timeout if self._ready else self._start_timeout
        try:
            self._program.send(data, timeout)
            answer = self._program.receive(timeout)
        except EnvironmentFailure:
            self._program.patience = 0.0
            raise
        self._ready = True
        return answer

    def _peer(self) -> str:
        return f"'{self._command[0]}'"


def split_command(command: str) -> list[str]:
    """The words of a command, files among them made absolute; ValueError when there are none."""
    try:
        words = shlex.split(str(command))
    except ValueError as error:
        raise ValueError(f"command {command!r}: {error}") from error
    if not words:
        raise ValueError("command is empty")
    return [str(Path(w).absolute()) if "/" in w and Path(w).is_file() else w for w in words]
