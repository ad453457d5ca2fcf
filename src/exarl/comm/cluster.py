"""All use of Ray: a cluster for a run or a sweep, objects and tasks on it, the outcome of calls."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any, TypeVar

from exarl.errors import ConfigError, Stopped, install

T = TypeVar("T")

ORDERS = "orders"
"""Calls of this group are executed while another call of the same object is running."""

KNOCK_S = 10.0
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
MODE = "RAY_AUTH_MODE"
BEYOND = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Despite its name, 0 keeps Ray to the loopback address on every system."""
GRACE_S, STRAYS_S = 3.0, 10.0
TEMPORARY, PREFIX, YOUNG_S = Path("/tmp"), "exarl-ray-", 60.0
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
DEAD = "The actor is dead because "


@dataclass(frozen=True)
class Needs:
    """What Ray reserves for an object."""

    cpus: float = 1.0
    gpus: float = 0.0


class Cluster:
    """A Ray cluster while open: the one at ``address``, or (None) one on this machine until closed.

    A local cluster is configured with ``cpus`` CPUs, since a laptop may run more actors than it has
    cores; None: as many as the machine has. It accepts connections from this machine only, and only
    with its token: otherwise other users could run code as this user.
    """

    def __init__(self, address: str | None, cpus: int | None = None) -> None:
        self._address = address
        self._cpus = cpus
        self._folder: Path | None = None
        self._stop: int | None = None
        self._started = False
        self._lock: IO[str] | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of a local cluster's files."""
        return self._folder

    def __enter__(self) -> Cluster:
        before = self._obey_stops()
        try:
            self._start()
        except (OSError, RuntimeError, ValueError) as error:
            self.close()
            reason = str(error).strip().split("\n")[0]
            where = "a local Ray" if self._address is None else f"Ray at {self._address}"
            raise ConfigError(f"cannot use {where}: {reason}") from error
        except (_StopNow, SystemExit) as error:  # the latter is Ray's own reaction to SIGTERM
            self.close()
            raise Stopped(self._stop or signal.SIGTERM) from error
        except BaseException:
            self.close()
            raise
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
        self._started = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports about the run
        if self._address is not None:
            _knock(self._address)
            show_token(os.environ)
            with contextlib.chdir("/"):
                _ray().init(address=self._address, **quiet)
            return
        guard(os.environ, imported="ray" in sys.modules)
        ray = _ray()
        # Short, since names of sockets are limited to about a hundred letters. Ray makes its folder
        # writable for all users, so that it has to lie in one which only this user can enter.
        sweep_folders(TEMPORARY)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=TEMPORARY))
        self._lock = (self._folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Ray puts the folder in which it starts first on the import path of its processes: use one to
        # which no user adds modules.
        with contextlib.chdir("/"):
            ray.init(
                address="local",
                num_cpus=self._cpus,
                include_dashboard=False,
                _temp_dir=str(self._folder / "r"),
                **quiet,
            )

    def _obey_stops(self) -> dict[int, Any]:
        """Have a stop signal end the start of Ray at once; returns the previous handlers."""

        def stop(signum: int, _: object) -> None:
            if self._stop is None:
                self._stop = signum
                raise _StopNow

        if threading.current_thread() is not threading.main_thread():
            return {}
        return {s: signal.signal(s, stop) for s in STOPS}

    def close(self) -> None:
        if "ray" in sys.modules:
            with contextlib.suppress(AttributeError):  # stopped while it was imported
                _ray().shutdown()
        if self._folder is not None:
            _end_strays(self._folder, GRACE_S if self._started else 0.0)
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


class _StopNow(BaseException):
    """A stop signal, which no ``except Exception`` catches."""


class Remote:
    """An object in a process of its own on the cluster; it ends with the process that made it."""

    def __init__(self, kind: type, needs: Needs, *arguments: object, spread: bool = False) -> None:
        made = _ray().remote(
            num_cpus=needs.cpus,
            num_gpus=needs.gpus,
            max_restarts=0,
            concurrency_groups={ORDERS: 1},
            scheduling_strategy="SPREAD" if spread else "DEFAULT",
        )(kind)
        self.handle: Any = made.remote(*arguments)

    @classmethod
    def of(cls, handle: object) -> Remote:
        """The object that another process has made, by its ``handle``."""
        remote = cls.__new__(cls)
        remote.handle = handle
        return remote

    def call(self, method: str, *arguments: object, now: bool = False) -> Future[Any]:
        """Call ``method`` after the calls before; ``now``: while they are running."""
        called = getattr(self.handle, method)
        if now:
            called = called.options(concurrency_group=ORDERS)
        future: Future[Any] = called.remote(*arguments).future()
        return future

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            _ray().kill(self.handle)


def task(function: Callable[..., object], cpus: float, *arguments: object) -> object:
    """Call ``function`` once, somewhere on the cluster; returns a reference for ``outcome``."""
    return _ray().remote(num_cpus=cpus, max_retries=0)(function).remote(*arguments)


def outcome(reference: object, lost: T) -> T | None:
    """What a task returned, ``lost`` if its process is gone, None while it is running."""
    ray = _ray()
    if not ray.wait([reference], timeout=0)[0]:
        return None
    try:
        returned: T = ray.get(reference)
        return returned
    except ray.exceptions.RayError:
        return lost


def cancel(reference: object) -> None:
    """End a task at once."""
    _ray().cancel(reference, force=True)


def put(data: bytes) -> object:
    """Store ``data`` in the object store; returns a reference, an argument for any number of calls."""
    reference: object = _ray().put(data)
    return reference


def resources() -> dict[str, float]:
    """The resources of all machines of the cluster together, by Ray's names."""
    total: dict[str, float] = _ray().cluster_resources()
    return total


def version() -> str:
    return f"Ray {_ray().__version__}"


def why(error: BaseException) -> str:
    """Why a call failed, in one line."""
    ray = _ray()
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause
        return f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
    if isinstance(error, ray.exceptions.RayActorError):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if "in its creation task" in lines[0]:
            return lines[-1]  # the error itself
        reasons = [line for line in lines if line.startswith(DEAD)]
        return reasons[0].removeprefix(DEAD).partition(". ")[0] if reasons else lines[0]
    return f"{type(error).__name__}: {error}"


def gone(error: BaseException) -> bool:
    """Whether a call failed because its process is gone."""
    return isinstance(error, _ray().exceptions.RayActorError)


def cause(error: BaseException) -> BaseException:
    """The exception that a call raised, if it is known."""
    return getattr(error, "cause", None) or error


def then(
    future: Future[T], done: Callable[[T], None], failed: Callable[[BaseException], None]
) -> None:
    """Call ``done`` with the result of a call, or ``failed`` with its error, in another thread."""

    def completed(call: Future[T]) -> None:
        error = call.exception()
        failed(error) if error is not None else done(call.result())

    future.add_done_callback(completed)


def _knock(address: str) -> None:
    """OSError if no process listens there; Ray itself would wait for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), KNOCK_S).close()


def _end_strays(folder: Path, grace: float) -> None:
    """Kill those of Ray's processes with this folder that still run after ``grace`` seconds.

    Processes that they have started, such as a training that writes its last checkpoint, go on.
    """
    begun = time.monotonic()
    while (age := time.monotonic() - begun) < grace + STRAYS_S:
        found = _rays(folder)
        if not found:
            return
        for pid in found if age >= grace else ():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def sweep_folders(place: Path) -> None:
    """Remove the folders of clusters whose program was killed: no process holds their locks."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, too young to have a lock, or in use
            about = folder.lstat()
            if about.st_uid != os.geteuid() or time.time() - about.st_mtime < YOUNG_S:
                continue
            with (folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def _rays(folder: Path) -> list[int]:
    """Ray's processes that have ``folder`` in their command or files open in it: some rename
    themselves, others have not opened any yet."""
    programs = os.fsencode(Path(str(_ray().__file__)).parent) + b"/"
    mark = os.fsencode(folder) + b"/"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone, or another user's
            line = (process / "cmdline").read_bytes()
            if not line.startswith(b"ray::") and programs not in line:
                continue
            if mark in line or any(file.startswith(mark) for file in _open_files(process)):
                found.append(int(process.name))
    return found


def _open_files(process: Path) -> Iterator[bytes]:
    for file in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield os.fsencode(file.readlink())


def guard(environ: MutableMapping[str, str], imported: bool = False) -> None:
    """Set that a local cluster accepts connections from this machine only, and only with a token.

    Ray reads these variables when it is imported: ConfigError if it was ``imported`` without them.
    """
    wanted = {MODE: "token", BEYOND: "0"}
    if imported and any(environ.get(name) != value for name, value in wanted.items()):
        raise ConfigError(
            "a local Ray cannot be made safe, since 'ray' is already imported: let EXARL import it,"
            f" or set {MODE}=token and {BEYOND}=0 before"
        )
    environ.update(wanted)
    if not any(name in environ for name in TOKENS):
        environ[TOKENS[0]] = secrets.token_hex(32)


def show_token(environ: MutableMapping[str, str], home: Path | None = None) -> None:
    """Use the user's token if there is one: a head node that finds it requires it of every client.

    Ray writes it for the first cluster that needs one, readable by all users, and does not look for
    it when connecting.
    """
    if environ.get(BEYOND) == "0":
        del environ[BEYOND]  # of a local cluster that this process is part of
    kept = (home or Path.home()) / ".ray" / "auth_token"
    if any(name in environ for name in TOKENS) or kept.is_file():
        environ.setdefault(MODE, "token")
    with contextlib.suppress(OSError):
        if kept.stat().st_mode & 0o077:
            kept.chmod(0o600)


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"Ray is not installed: {install('ray')}") from error
    return ray
