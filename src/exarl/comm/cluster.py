"""Ray, in one place: a cluster for a run or a sweep, objects and tasks on it, what becomes of calls."""

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
from typing import IO, Any

from exarl.errors import ConfigError, Stopped, install

ORDERS = "orders"
"""Calls of this group are answered while another call of the same object goes on."""

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
    """What Ray sets aside for an object."""

    cpus: float = 1.0
    gpus: float = 0.0


class Cluster:
    """A Ray cluster while open: the one at ``address``, or one on this machine for so long only.

    The latter is told to have the ``cpus`` that are wanted, since a laptop may well run more actors
    than it has cores; None: what the machine has. It answers to this machine alone, and only to
    processes that know its token: anyone else could run code as this user.
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
        """Where a local cluster has its files."""
        return self._folder

    def __enter__(self) -> Cluster:
        before = self._obey_stops()
        try:
            self._start()
        except (OSError, RuntimeError, ValueError) as error:
            self.close()
            words = str(error).strip().split("\n")[0]
            where = "a local Ray" if self._address is None else f"Ray at {self._address}"
            raise ConfigError(f"cannot use {where}: {words}") from error
        except (_StopNow, SystemExit) as error:  # the latter is Ray's own answer to SIGTERM
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
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody else learns of the run
        if self._address is not None:
            _knock(self._address)
            show_token(os.environ)
            with contextlib.chdir("/"):
                _ray().init(address=self._address, **quiet)
            return
        guard(os.environ, imported="ray" in sys.modules)
        ray = _ray()
        # Short, since names of sockets may have some hundred letters only. Ray lets everyone write
        # to its folder, so that lies in one which only this user can enter.
        sweep_folders(TEMPORARY)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=TEMPORARY))
        self._lock = (self._folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Ray puts the folder in which it starts first on the import path of its processes: let that be
        # one to which nobody adds modules.
        with contextlib.chdir("/"):
            ray.init(
                address="local",
                num_cpus=self._cpus,
                include_dashboard=False,
                _temp_dir=str(self._folder / "r"),
                **quiet,
            )

    def _obey_stops(self) -> dict[int, Any]:
        """While Ray starts a stop signal ends that at once; the handlers from before."""

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
    """A stop signal, past everything that catches mere exceptions."""


class Remote:
    """An object in a process of its own, somewhere on the cluster, and dying with its maker."""

    def __init__(self, kind: type, needs: Needs, *arguments: Any, spread: bool = False) -> None:
        made = _ray().remote(
            num_cpus=needs.cpus,
            num_gpus=needs.gpus,
            max_restarts=0,
            concurrency_groups={ORDERS: 1},
            scheduling_strategy="SPREAD" if spread else "DEFAULT",
        )(kind)
        self.handle: Any = made.remote(*arguments)

    @classmethod
    def of(cls, handle: Any) -> Remote:
        """One that somebody else has made."""
        remote = cls.__new__(cls)
        remote.handle = handle
        return remote

    def call(self, method: str, *arguments: Any, now: bool = False) -> Future[Any]:
        """Have ``method`` called after the calls before; ``now``: beside them."""
        called = getattr(self.handle, method)
        if now:
            called = called.options(concurrency_group=ORDERS)
        future: Future[Any] = called.remote(*arguments).future()
        return future

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            _ray().kill(self.handle)


def task(function: Callable[..., Any], cpus: float, *arguments: Any) -> Any:
    """Have ``function`` called once, somewhere on the cluster; what ``outcome`` asks about."""
    return _ray().remote(num_cpus=cpus, max_retries=0)(function).remote(*arguments)


def outcome(reference: Any, lost: Any) -> Any | None:
    """What a task returned, ``lost`` when it is no more, None while it goes on."""
    ray = _ray()
    if not ray.wait([reference], timeout=0)[0]:
        return None
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:
        return lost


def cancel(reference: Any) -> None:
    """End a task at once."""
    _ray().cancel(reference, force=True)


def put(data: bytes) -> Any:
    """``data`` in the object store: an argument for any number of calls."""
    return _ray().put(data)


def resources() -> dict[str, float]:
    """What the machines of the cluster have in all, by Ray's names."""
    found: dict[str, float] = _ray().cluster_resources()
    return found


def version() -> str:
    return f"Ray {_ray().__version__}"


def why(error: BaseException) -> str:
    """A failed call in one line."""
    ray = _ray()
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause
        return f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
    if isinstance(error, ray.exceptions.RayActorError):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if "in its creation task" in lines[0]:
            return lines[-1]  # the error itself
        told = [line for line in lines if line.startswith(DEAD)]
        return told[0].removeprefix(DEAD).partition(". ")[0] if told else lines[0]
    return f"{type(error).__name__}: {error}"


def gone(error: BaseException) -> bool:
    """Whether a call failed because the process is no more."""
    return isinstance(error, _ray().exceptions.RayActorError)


def cause(error: BaseException) -> BaseException:
    """What a call raised, where that is known."""
    return getattr(error, "cause", None) or error


def then(future: Future[Any], heard: Callable[[Any], None], failed: Callable[[Any], None]) -> None:
    """Call one of the two when the answer is there; in another thread."""

    def answered(done: Future[Any]) -> None:
        error = done.exception()
        failed(error) if error is not None else heard(done.result())

    future.add_done_callback(answered)


def _knock(address: str) -> None:
    """OSError when nobody listens there; Ray itself would wait for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), KNOCK_S).close()


def _end_strays(folder: Path, grace: float) -> None:
    """End what is left of Ray's processes with this folder after ``grace`` seconds.

    What they have started for others, such as a training that writes its last checkpoint, goes on.
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
    """Remove the folders of clusters whose program was killed: their locks are free."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # not ours, not old enough to have a lock, or in use
            about = folder.lstat()
            if about.st_uid != os.geteuid() or time.time() - about.st_mtime < YOUNG_S:
                continue
            with (folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def _rays(folder: Path) -> list[int]:
    """Ray's processes that have ``folder`` in their command or have files open in it: some rename
    themselves, others have opened none yet."""
    programs, mark = os.fsencode(Path(_ray().__file__).parent) + b"/", os.fsencode(folder) + b"/"
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
    """Have a cluster on this machine listen to this machine alone, and ask everyone for a token.

    Ray reads these when it is imported: ConfigError where it was ``imported`` without them.
    """
    wanted = {MODE: "token", BEYOND: "0"}
    if imported and any(environ.get(name) != value for name, value in wanted.items()):
        raise ConfigError(
            "a local Ray cannot be made safe, since 'ray' is imported already: leave that to EXARL,"
            f" or set {MODE}=token and {BEYOND}=0 before"
        )
    environ.update(wanted)
    if not any(name in environ for name in TOKENS):
        environ[TOKENS[0]] = secrets.token_hex(32)


def show_token(environ: MutableMapping[str, str], home: Path | None = None) -> None:
    """Use the user's token where there is one: a head node that finds it asks everyone for it.

    Ray writes one for the first cluster that needs it, for everyone to read, and does not look for it
    when connecting.
    """
    if environ.get(BEYOND) == "0":
        del environ[BEYOND]  # of a local cluster that this process is part of
    kept = (home or Path.home()) / ".ray" / "auth_token"
    if any(name in environ for name in TOKENS) or kept.is_file():
        environ.setdefault(MODE, "token")
    with contextlib.suppress(OSError):
        if kept.stat().st_mode & 0o077:
            kept.chmod(0o600)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"Ray is not installed: {install('ray')}") from error
    return ray
