"""A program that talks the protocol: started, connected, listened to, and ended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal

from exarl.envs import child
from exarl.envs.external.last_words import last_words
from exarl.envs.external.link import ADDRESS, Link
from exarl.envs.external.protocol import MAX_BYTES, Kind, Message, encode
from exarl.envs.external.shared_memory import MEMORY
from exarl.errors import EnvironmentFailure
from exarl.records.scratch import scratch_folder

Transport = Literal["socket", "stdio", "pair"]

_LONGEST_PATH = 100  # of a Unix socket; systems allow 104 or 108
_READ_BACK = 1 << 14  # bytes of its output among which a program's last words are looked for


class Program:
    """A child and the connection to it.

    With transport ``socket`` the program connects to the Unix socket that ``EXARL_ADDRESS`` names,
    which also a rank of an MPI launcher on this host can do; with ``stdio`` it talks over its standard
    input and output, which launchers carry from any host; with ``pair`` it inherits a socket, and the
    file ``memory`` if there is one. ``work_dir`` is the folder it runs in, and where its output goes;
    without one it runs in the present folder, and its output is kept until the end; a ``temporary`` one
    is removed with all it holds once the program is closed. The output of a
    program with a ``pair`` goes to the file ``output``, or to this process's stderr.

    ``{address}`` in the command is replaced by the address. ``last_moment`` are the seconds that a
    program which hung up is given to end, so that its exit code is known; ``patience`` those that it
    has to end by itself once it is dismissed, and ``grace`` those from SIGTERM to SIGKILL after them.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        transport: Transport = "socket",
        work_dir: Path | None = None,
        temporary: bool = False,
        output: Path | None = None,
        memory: int | None = None,
        max_bytes: int = MAX_BYTES,
        last_moment: float = 2.0,
        patience: float = 2.0,
        grace: float = 2.0,
    ) -> None:
        self.name = command[0]
        self.patience, self.grace = patience, grace
        self._link: Link | None = None
        self._log: IO[bytes] | None = None
        self._listener: socket.socket | None = None
        self._folder: Path | None = None
        self._temporary = work_dir if temporary else None
        self._max_bytes, self._last_moment = max_bytes, last_moment
        try:
            if transport == "pair":
                self._process = self._start_with_pair(command, output, memory)
                return
            self._folder = _private_folder()
            output = _output_file(work_dir or self._folder)
            self._log = output.open("rb")
            address = "stdio" if transport == "stdio" else self._listen(self._folder)
            self._process = self._start(command, address, output, work_dir)
        except OSError as error:
            self._clean()
            reason = error.strerror or str(error)
            raise EnvironmentFailure(f"cannot start '{self.name}': {reason}") from error

    @property
    def connected(self) -> bool:
        return self._link is not None

    def fileno(self) -> int:
        """What becomes readable when the program connects, or when it says something."""
        found = self._link or self._listener
        assert found is not None
        return found.fileno()

    def accept(self, timeout: float) -> bool:
        """Whether the program has connected within ``timeout`` s; EnvironmentFailure if it ended."""
        deadline = time.monotonic() + timeout
        while self._link is None:
            assert self._listener is not None
            self._listener.settimeout(max(0.0, min(0.1, deadline - time.monotonic())))
            try:
                peer, _ = self._listener.accept()
            except (TimeoutError, BlockingIOError):
                if self._process.poll() is not None:
                    raise EnvironmentFailure(self.ending(), "crash") from None
                if time.monotonic() >= deadline:
                    return False
                continue
            descriptor = peer.detach()
            self._link = self._new_link(descriptor, descriptor)
            self._tidy()
        return True

    def send(self, data: bytes, timeout: float | None = None) -> None:
        """Send one message; EOFError or TimeoutError when the program cannot be reached."""
        assert self._link is not None
        self._link.send(data, timeout)

    def receive(self, timeout: float | None = None) -> bytes:
        """Its next message; EOFError or TimeoutError when none comes, ProtocolError when it is none."""
        assert self._link is not None
        return self._link.receive(timeout)

    def ask(self, data: bytes, timeout: float | None = None) -> bytes:
        """Send a message and wait for the answer; errors as of ``send`` and ``receive``."""
        link = self._link
        assert link is not None
        link.send(data, timeout)
        return link.receive(timeout)

    def failure(self, error: EOFError | TimeoutError) -> EnvironmentFailure:
        """What ``send`` or ``receive`` raised, as an EnvironmentFailure."""
        if isinstance(error, TimeoutError):
            return EnvironmentFailure(f"'{self.name}' gave {error}{self._last_words()}", "timeout")
        return EnvironmentFailure(self.ending(), "crash")

    def ending(self) -> str:
        """How the program ended, in a sentence."""
        return f"'{self.name}' {self.how_it_ended()}{self._last_words()}"

    def how_it_ended(self) -> str:
        """How the program ended, in a few words; it is given a moment to do so."""
        if not child.ends_within(self._process, self._last_moment):
            return "closed its connection"
        return child.how_it_ended(child.kill_all(self._process))

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def dismiss(self) -> None:
        """Ask it to end. What it still has to say is ignored."""
        if self._link is not None:
            with suppress(EOFError, TimeoutError):
                self._link.send(encode(Message(Kind.CLOSE)), 0.1)
            self._link.finish()

    def signal(self, number: int) -> None:
        """Send a signal to the program, and to nothing that it has started."""
        self._process.send_signal(number)

    def terminate(self) -> None:
        """Tell it to end by a signal."""
        child.send(self._process, signal.SIGTERM)

    def close(self) -> None:
        """Dismiss the program, and end it and all that it has started if it does not end."""
        self.dismiss()
        child.end(self._process, self.patience, self.grace)
        self._clean()

    def kill(self) -> None:
        """End the program and all that it has started, at once."""
        self.patience = self.grace = 0.0
        self.close()

    def _new_link(self, reader: int, writer: int) -> Link:
        return Link(reader, writer, self._max_bytes, alive=lambda: not child.ended(self._process))

    def _listen(self, folder: Path) -> str:
        path = folder / "socket"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(1)
        return f"unix:{path}"

    def _start(
        self, command: Sequence[str], address: str, output: Path, work_dir: Path | None
    ) -> child.Child:
        words = [word.replace("{address}", address) for word in command]
        options: dict[str, Any] = {"cwd": work_dir}
        if address == "stdio":
            options |= {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = child.start_kept(words, output, environ={ADDRESS: address}, **options)
        if address != "stdio":
            return process
        assert process.stdin is not None
        assert process.stdout is not None
        reader, writer = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdout.close()
        process.stdin.close()
        self._link = self._new_link(reader, writer)
        self._tidy()
        return process

    def _start_with_pair(
        self, command: Sequence[str], output: Path | None, memory: int | None
    ) -> child.Child:
        ours, theirs = socket.socketpair()
        fds, environ = [theirs.fileno()], {ADDRESS: f"fd:{theirs.fileno()}"}
        if memory is not None:
            fds.append(memory)
            environ[MEMORY] = str(memory)
        try:
            with theirs:
                process = child.start_kept(command, output, environ=environ, pass_fds=fds)
        except OSError:
            ours.close()
            raise
        descriptor = ours.detach()
        self._link = self._new_link(descriptor, descriptor)
        return process

    def _last_words(self) -> str:
        if self._log is None or self._log.closed:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _READ_BACK))
        words = last_words(self._log.read().decode(errors="replace"))
        return f"; its last words: {words}" if words else ""

    def _tidy(self) -> None:
        """Once connected, neither the socket nor the private folder is needed by name, so that not even
        a killed process leaves them."""
        if self._listener is not None:
            self._listener.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _clean(self) -> None:
        if self._link is not None:
            self._link.close()
        self._tidy()
        if self._log is not None:
            self._log.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _private_folder() -> Path:
    """A folder that only this user can read, with a name short enough for a socket in it."""
    longest = len(f"{tempfile.gettempdir()}/exarl-12345678/socket")
    return scratch_folder("exarl-", None if longest < _LONGEST_PATH else "/tmp")


def _output_file(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="program-", suffix=".log", dir=folder)
    os.close(descriptor)
    return Path(name)
