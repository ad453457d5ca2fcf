"""The file of an ``ipc://`` address: taken only if it is free, removed only if it is one's own."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

from exarl.errors import ConfigError

_BACKLOG = 100


class UnixAddress:
    """A listening Unix socket at ``path``, for ZeroMQ to accept from.

    ZeroMQ itself would remove whatever is at ``path`` first. Here only the socket of a server that is
    gone, and that belonged to this user, is replaced; anything else is a ConfigError.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()  # environments may change the folder
        self._remove_stale()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(path)
            self._own = _identity(self.path)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except (OSError, ValueError) as error:
            listener.close()
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"cannot listen at ipc://{path}: {reason}") from error
        self.descriptor = listener.detach()  # which ZeroMQ closes
        """The listening socket."""

    def remove(self) -> None:
        """Remove the file, unless it has become another one."""
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._own:
                self.path.unlink()

    def _remove_stale(self) -> None:
        try:
            found = self.path.lstat()
        except OSError:
            return  # nothing is there, or binding will say what is wrong
        if not stat.S_ISSOCK(found.st_mode):
            raise ConfigError(f"cannot listen at ipc://{self.path}: a file is there already")
        if found.st_uid != os.getuid():
            raise ConfigError(f"cannot listen at ipc://{self.path}: it is another user's")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.setblocking(False)  # a server that is busy makes one wait: it is there
            try:
                trial.connect(str(self.path))
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    self.path.unlink()
                return
            except OSError:
                pass
        raise ConfigError(f"cannot listen at ipc://{self.path}: a server is there already")


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
