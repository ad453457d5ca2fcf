"""``exarl`` commands as a user runs them, but forked from a process that has imported EXARL already.

A command then costs a tenth of a second instead of one. Everything else is as in a process of its own:
session, folder, home, output, limits, signals, exit code, and the threads and processes left behind.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MEMORY = 6 << 30
"""Bytes of address space a command may have: a wrong size in a file must not take the machine."""
LEFT_BEHIND_S = 3.0
"""Seconds that processes of a command may take to go after it has ended."""
SUBREAPER = 36  # prctl(PR_SET_CHILD_SUBREAPER)
LIBRARY = "ATTACK_LIBRARY"
"""The variable with the path of the compiled failing_calls.c."""

KINDS = {
    name: 1 << bit
    for bit, name in enumerate(
        ("open", "write", "sync", "rename", "mkdir", "remove", "read", "list", "lock")
    )
}
CHANGING = sum(KINDS[name] for name in ("open", "write", "sync", "rename", "mkdir", "remove"))
COUNT, FAIL_ONCE, FAIL_ON, KILL_BEFORE, KILL_AFTER = range(5)


@dataclass(frozen=True)
class Fault:
    """What happens at the ``number``-th file operation of these ``kinds`` on paths with ``scope``."""

    scope: str
    kinds: int
    number: int
    how: int
    error: int = 0

    def arm(self) -> None:
        """From now on in this process."""
        scope = self.scope.encode()
        library().attack_arm(scope, self.kinds, ctypes.c_long(self.number), self.how, self.error)

    def variables(self, rank: int | None = None) -> dict[str, str]:
        """For processes that are started, of a job only for one ``rank``."""
        words = (self.scope, self.kinds, self.number, self.how, self.error)
        given = {"ATTACK_CALLS": " ".join(map(str, words))}
        return given if rank is None else {**given, "ATTACK_RANK": str(rank)}


@dataclass(frozen=True)
class Sent:
    """A signal ``after`` this many seconds, to all processes of the command, the first alone, or
    one MPI ``rank``."""

    after: float
    number: int = signal.SIGKILL
    to_all: bool = True
    rank: int | None = None

    def targets(self, child: int) -> list[int]:
        """The processes that get it, of the command that ``child`` is."""
        if self.rank is None:
            return descendants() if self.to_all else [child]
        return [pid for pid in descendants() if f"PMI_RANK={self.rank}" in _variables(pid)]


@dataclass(frozen=True)
class Ended:
    """How a command ended; ``code`` is None where it had to be killed, minus the signal's number where
    one ended it, and ``left`` names the processes it left behind."""

    code: int | None
    out: str
    err: str
    seconds: float
    left: tuple[str, ...] = ()

    @property
    def last(self) -> str:
        """The last line of standard error."""
        return (self.err.strip().splitlines() or [""])[-1]

    def wrong(self, *codes: int, ranks: int = 1) -> str:
        """What is wrong with the end of any command; empty when nothing is.

        It must end in time with one of ``codes``, without a traceback, say why it failed in one last
        line, and leave no process behind. With several ``ranks`` mpiexec may say more.
        """
        if self.code is None:
            return f"hung (killed after {self.seconds:.0f} s): {self.last[:200]}"
        if "Traceback (most recent call last)" in self.err:
            return f"traceback (exit {self.code}): {self.last[:200]}"
        if self.code not in codes:
            return f"exit code {self.code}: {self.last[:200]}"
        spoken = [line for line in self.err.splitlines() if line.startswith("exarl: ")]
        told = self.last.startswith("exarl: ") and (len(spoken) == 1 or ranks > 1)
        if self.code in (1, 2) and not told:
            return f"exit {self.code} without one line that says why: {self.err[-300:]!r}"
        if self.left:
            return f"left {len(self.left)} processes behind: {', '.join(self.left)[:200]}"
        return ""


def build_library(folder: Path) -> Path | None:
    """Compile failing_calls.c; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    source, path = Path(__file__).with_name("failing_calls.c"), folder / "failing_calls.so"
    flags = ["-shared", "-fPIC", "-O1", "-o", str(path), str(source), "-ldl"]
    done = subprocess.run([compiler, *flags], capture_output=True, check=False)
    return path if done.returncode == 0 else None


def library() -> ctypes.CDLL:
    """The preloaded library."""
    found = ctypes.CDLL(os.environ[LIBRARY])
    found.attack_seen.restype = ctypes.c_long
    return found


def have_faults() -> bool:
    """Whether file operations can be made to fail."""
    return LIBRARY in os.environ and os.environ[LIBRARY] in os.environ.get("LD_PRELOAD", "")


def adopt_orphans() -> None:
    """Processes that lose their parent become children of this one, where they are found."""
    ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Begun:
    """A command that has been started."""

    pid: int
    output: tuple[Path, Path]
    started: float

    def read(self) -> list[str]:
        """Its standard output and standard error so far."""
        return [path.read_text(encoding="utf-8", errors="replace") for path in self.output]


def exarl(words: Sequence[str], folder: Path, **options: Any) -> Ended:
    """Run ``exarl WORDS`` in ``folder``: ``begin`` and ``finish`` in one, with the options of both."""
    named = {name: options.pop(name) for name in ("limit", "sent") if name in options}
    return finish(begin(words, folder, **options), **named)


def begin(
    words: Sequence[str],
    folder: Path,
    *,
    fault: Fault | None = None,
    variables: Mapping[str, str] | None = None,
    fresh: bool = False,
    prepare: Callable[[], None] | None = None,
) -> Begun:
    """Start ``exarl WORDS`` in ``folder``, at home in ``folder.home``.

    ``fresh`` starts a Python for it; else ``prepare`` is called in the new process first.
    """
    started = time.monotonic()
    home = folder.parent / f"{folder.name}.home"
    home.mkdir(exist_ok=True)
    output = folder.parent / f"{folder.name}.out", folder.parent / f"{folder.name}.err"
    for path in output:
        path.write_bytes(b"")
    extra = {"HOME": str(home), **(variables or {})}
    if fresh:
        extra |= fault.variables() if fault is not None else {}
        return Begun(_start(words, folder, extra, output), output, started)
    child = os.fork()
    if not child:
        _become(words, folder, extra, output, fault, prepare)
    return Begun(child, output, started)


def finish(begun: Begun, *, limit: float = 60.0, sent: Sequence[Sent] = ()) -> Ended:
    """Wait for its end, and for that of all it started: nothing that descends from this process
    survives the call."""
    code = _await(begun.pid, begun.started, limit, sent)
    left = () if code is None else _left_behind()
    kill_descendants()
    return Ended(code, *begun.read(), time.monotonic() - begun.started, left)


def _start(
    words: Sequence[str], folder: Path, extra: dict[str, str], output: tuple[Path, Path]
) -> int:
    with output[0].open("wb") as out, output[1].open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-c", "from exarl.cli.main import entry; entry()", *words],
            cwd=folder,
            env={**os.environ, **extra},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=_limit_memory,  # noqa: PLW1509 - there is one thread
        ).pid


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _become(
    words: Sequence[str],
    folder: Path,
    extra: dict[str, str],
    output: tuple[Path, Path],
    fault: Fault | None,
    prepare: Callable[[], None] | None,
) -> None:
    """Be the command; does not return."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        _limit_memory()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, place in enumerate([Path(os.devnull), *output]):
            flags = os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(place, flags), target)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
        os.environ.update(extra)
        sys.argv = ["exarl", *words]
        from exarl.cli.main import entry

        if prepare is not None:
            prepare()
        if fault is not None:
            fault.arm()
        code = _exit_code(entry)
        if fault is not None and fault.how == COUNT:
            output[0].with_suffix(".calls").write_text(str(library().attack_seen()))
        threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BrokenPipeError:
        code = 120
    finally:
        os._exit(code & 0xFF)


def _exit_code(entry: Callable[[], None]) -> int:
    """Of a program whose main function this is."""
    try:
        entry()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return 130
    except BaseException:  # noqa: BLE001 - what the interpreter would do
        traceback.print_exc()
        return 1
    return 0


def _await(child: int, started: float, limit: float, sent: Sequence[Sent]) -> int | None:
    """Wait for ``child``, sending signals at their times; None when it had to be killed."""
    handle = os.pidfd_open(child)
    try:
        times = [*sorted(sent, key=lambda each: each.after), None]
        for each in times:
            due = limit if each is None else each.after
            wait = max(0.0, started + due - time.monotonic())
            if select.select([handle], [], [], wait)[0]:
                break
            if each is None:
                kill_descendants()
                return None
            for pid in each.targets(child):
                with suppress(ProcessLookupError):
                    os.kill(pid, each.number)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(handle)


def descendants() -> list[int]:
    """The living processes that come from this one, parents first."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        for task in _listed(f"/proc/{pid}/task"):
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
                waiting += map(int, children)
                found += map(int, children)
    return found


def _left_behind() -> tuple[str, ...]:
    """What a command that has ended left running, by name, after a little patience."""
    deadline = time.monotonic() + LEFT_BEHIND_S
    while True:
        _reap()
        names = [_name(pid) for pid in descendants()]
        if not names or time.monotonic() > deadline:
            return tuple(name for name in names if name)
        time.sleep(0.02)


def kill_descendants() -> None:
    while pids := descendants():
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.002)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _name(pid: int) -> str:
    """The command of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:80] or "?"
    except OSError:
        return ""


def _variables(pid: int) -> list[str]:
    """The environment that a process was started with."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return []


def _listed(path: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(path)  # noqa: PTH208
    return []
