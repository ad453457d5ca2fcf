"""Logging: a file per rank; the terminal shows warnings of the first rank and of all environments."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class _File(logging.FileHandler):
    """Ignores a full disk: the code that needs the disk reports it, once."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


class RankLog:
    """Attaches handlers to the ``exarl`` logger, and removes them on ``close``."""

    def __init__(self, path: Path | None, level: str, *, terminal: bool) -> None:
        self._logger = logging.getLogger("exarl")
        self._before = self._logger.level
        self._logger.setLevel(level.upper())
        self._handlers: list[logging.Handler] = []
        if path is not None:
            self._add(_File(path, encoding="utf-8"), _FORMAT)
        handler = logging.StreamHandler(sys.stderr)
        handler.setLevel(logging.WARNING)
        if not terminal:
            handler.addFilter(logging.Filter("exarl.envs"))  # each rank has environments of its own
        self._add(handler, "%(levelname)s: %(message)s")

    def failed(self, error: BaseException) -> None:
        """Write the traceback to the file only; the terminal shows the error otherwise."""
        form = "".join(traceback.format_exception(error))
        for handler in self._handlers:
            if isinstance(handler, _File):
                name, level = self._logger.name, logging.ERROR
                handler.handle(logging.LogRecord(name, level, __file__, 0, form, None, None))

    def close(self) -> None:
        for handler in self._handlers:
            self._logger.removeHandler(handler)
            handler.close()
        self._logger.setLevel(self._before)

    def _add(self, handler: logging.Handler, form: str) -> None:
        handler.setFormatter(logging.Formatter(form))
        self._logger.addHandler(handler)
        self._handlers.append(handler)
