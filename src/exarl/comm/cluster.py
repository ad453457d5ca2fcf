"""Ray, in one place: a cluster for a run or a sweep, objects and tasks on it, what becomes of calls."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError

ORDERS = "orders"
"""Calls of this group are answered while another call of the same object goes on."""

KNOCK_S = 10.0
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
DEAD = "The actor is dead because "


@dataclass(frozen=True)
class Needs:
    """What Ray sets aside for an object."""

    cpus: float = 1.0
    gpus: float = 0.0


class Cluster:
    """A Ray cluster while open: the one at ``address``, or one on this machine for so long only.

    The latter is told to have the ``cpus`` that are wanted, since a laptop may well run more actors
    than it has cores; None: what the machine has.
    """

    def __init__(self, address: str | None, cpus: int | None = None) -> None:
        self._address = address
        self._cpus = cpus
        self._folder: str | None = None

    def __enter__(self) -> Cluster:
        ray = _ray()
        quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody else learns of the run
        try:
            if self._address is not None:
                _knock(self._address)
                _show_token(os.environ)
                ray.init(address=self._address, **quiet)
            else:
                # Short, since names of sockets may have some hundred letters only.
                self._folder = tempfile.mkdtemp(prefix="exarl-ray-", dir="/tmp")
                ray.init(
                    address="local",
                    num_cpus=self._cpus,
                    include_dashboard=False,
                    _temp_dir=self._folder,
                    **quiet,
                )
        except (OSError, RuntimeError, ValueError) as error:
            self.close()
            words = str(error).strip().split("\n")[0]
            where = "a local Ray" if self._address is None else f"Ray at {self._address}"
            raise ConfigError(f"cannot use {where}: {words}") from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        _ray().shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


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


def _show_token(environ: MutableMapping[str, str], home: Path | None = None) -> None:
    """Use the user's token where there is one: a head node that finds it asks everyone for it.

    Ray 2.60 writes one for the first local cluster, and then does not look for it when connecting.
    """
    kept = (home or Path.home()) / ".ray" / "auth_token"
    if any(name in environ for name in TOKENS) or kept.is_file():
        environ.setdefault("RAY_AUTH_MODE", "token")


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("Ray is not installed; it comes with the extra 'exarl[ray]'") from error
    return ray
