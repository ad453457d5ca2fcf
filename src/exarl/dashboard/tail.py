"""Growing files of runs: read on from where the last read ended, and thinned to bound the memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exarl.records.directory import open_regular

MOST_ROWS = 600
"""Rows of a run that are kept; a figure on a screen shows no more."""
_CHUNK = 8 << 20  # bytes per read, so that a long file does not fill the memory
_LINE = 1 << 14


class Tail:
    """The complete lines that a file has gained since the last call.

    The file is opened in each call, as a network disk shows changes only then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def read(self) -> tuple[list[bytes], bool]:
        """The new lines, and whether they are the first of a file that was replaced or cut."""
        try:
            with open(open_regular(self._path), "rb") as file:
                seen = os.fstat(file.fileno())
                fresh = seen.st_ino != self._inode or seen.st_size < self._offset
                if fresh:
                    self._inode, self._offset = seen.st_ino, 0
                file.seek(self._offset)
                text = file.read(_CHUNK) or b""
        except OSError:
            return [], False
        whole = text.rfind(b"\n") + 1
        if not whole and len(text) == _CHUNK:
            whole = len(text)  # a line without end is none of ours
        self._offset += whole
        return text[:whole].splitlines(), fresh


class Rows:
    """The rows of a ``result.jsonl``: all, then every 2nd, every 4th ..., and always the newest."""

    def __init__(self, path: Path, most: int = MOST_ROWS) -> None:
        self._tail = Tail(path)
        self._most = most
        self._clear()

    def _clear(self) -> None:
        self._kept: list[dict[str, Any]] = []
        self._stride, self._count = 1, 0
        self._newest: dict[str, Any] | None = None

    def update(self) -> list[dict[str, Any]]:
        """Read what is new, and return the rows."""
        lines, fresh = self._tail.read()
        if fresh:
            self._clear()
        for line in lines:
            row = as_object(line)
            if row is None:
                continue
            self._newest = row
            if self._count % self._stride == 0:
                self._kept.append(row)
            self._count += 1
            if len(self._kept) > self._most:
                self._kept = self._kept[::2]
                self._stride *= 2
        if self._newest is None or self._kept[-1] is self._newest:
            return list(self._kept)
        return [*self._kept, self._newest]


def sampled(path: Path, points: int) -> list[Mapping[str, Any]]:
    """Rows of a ``result.jsonl`` at about equal distances, the newest included.

    The cost does not grow with the file.
    """
    try:
        with open(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= points * _LINE // 8:
                lines = file.read().split(b"\n")[:-1]
                chosen = lines[:: -(-len(lines) // points) or 1] + lines[-1:]
            else:
                step = max(1, (size - _LINE) // max(1, points - 1))
                chosen = [_line_at(file.fileno(), i * step) for i in range(points - 1)]
                chosen += os.pread(file.fileno(), _LINE, size - _LINE).split(b"\n")[-2:-1]
    except OSError:
        return []
    rows = [row for line in chosen if (row := as_object(line)) is not None]
    return [row for i, row in enumerate(rows) if not i or row != rows[i - 1]]


def as_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None for anything else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _line_at(handle: int, offset: int) -> bytes:
    """The first whole line after ``offset``; the first line of the file at 0."""
    text = os.pread(handle, _LINE, offset)
    lines = text.split(b"\n", 2)
    return lines[0] if not offset else lines[1] if len(lines) > 2 else b""
