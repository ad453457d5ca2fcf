"""Traces for Chrome (``chrome://tracing``) and Perfetto (ui.perfetto.dev): one track per rank.

Every rank collects spans in memory and writes one part at its end; ``merge`` joins the parts to a
trace. A part is compact (three integers per span), so that a thousand ranks need little memory.
"""

from __future__ import annotations

import json
import logging
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from exarl.records.replacing import replacing

log = logging.getLogger(__name__)


class Tracer:
    """Collects named spans of one rank, up to ``limit``; later ones are counted only.

    Times are ``time.perf_counter_ns()``; an anchor taken at construction turns them into wall-clock
    time, so that ranks align as well as their hosts' clocks do.
    """

    def __init__(self, rank: int, role: str, enabled: bool = True, limit: int = 200_000) -> None:
        self.rank = rank
        self.role = role
        self.enabled = enabled
        self.dropped = 0
        self._limit = limit
        self._names: dict[str, int] = {}  # name -> its number
        self._beside: set[str] = set()  # names with their own track
        self._spans = array("q")  # number of the name, start, end; three to a span
        self._to_wall = _wall_minus_perf_counter()

    def __len__(self) -> int:
        """How many spans are kept."""
        return len(self._spans) // 3

    def span(self, name: str) -> AbstractContextManager[object]:
        """A context manager that records how long its body took, also when the body raises."""
        return _Span(self, name) if self.enabled else _NOTHING

    def add(self, name: str, start_ns: int, end_ns: int, *, beside: bool = False) -> None:
        """Record one span from two readings of ``time.perf_counter_ns()``.

        ``beside``: another thread makes spans of this name, so they have their own track.
        """
        if not self.enabled:
            return
        if len(self._spans) >= 3 * self._limit:
            self.dropped += 1
            return
        number = self._names.setdefault(name, len(self._names))
        if beside:
            self._beside.add(name)
        self._spans.extend((number, start_ns, end_ns))

    def write(self, path: Path) -> None:
        """Write this rank's part for ``merge``; nothing when disabled."""
        if not self.enabled:
            return
        spans = self._spans
        part = {
            "rank": self.rank,
            "role": self.role,
            "dropped": self.dropped,
            "names": list(self._names),
            "beside": sorted(self._beside),
            "name": spans[0::3].tolist(),
            "start_ns": [start + self._to_wall for start in spans[1::3]],
            "duration_ns": [
                max(0, end - start) for start, end in zip(spans[1::3], spans[2::3], strict=True)
            ],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as aside, aside.open("w", encoding="utf-8") as file:
            json.dump(part, file, separators=(",", ":"))


class _Span:
    __slots__ = ("_name", "_start", "_tracer")

    def __init__(self, tracer: Tracer, name: str) -> None:
        self._tracer = tracer
        self._name = name

    def __enter__(self) -> None:
        self._start = time.perf_counter_ns()

    def __exit__(self, *exception: object) -> None:
        self._tracer.add(self._name, self._start, time.perf_counter_ns())


class _Nothing:
    """The span of a disabled tracer; one object serves all calls."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


_NOTHING = _Nothing()


def merge(parts: Sequence[Path], target: Path) -> None:
    """Write one trace of the parts of several ranks, times starting at 0.

    A part that is missing or damaged, as that of a killed rank, is named in the log and left out. Parts
    are read one at a time, twice, so that memory is that of the largest part.
    """
    starts = {path: part.first_ns for path in parts if (part := _read_part(path)) is not None}
    origin = min((first for first in starts.values() if first is not None), default=0)
    dropped = {}
    with replacing(target) as aside, aside.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[')
        separator = "\n"
        for path in starts:
            part = _read_part(path)
            if part is None:
                continue
            if part.dropped:
                dropped[part.label] = part.dropped
            for event in _events(part, origin):
                file.write(separator)
                file.write(event)
                separator = ",\n"
        file.write('\n],"otherData":')
        json.dump({"dropped_spans": dropped}, file)
        file.write("}\n")


@dataclass(frozen=True)
class _Part:
    """The spans of one rank, as ``Tracer.write`` stored them."""

    rank: int
    role: str
    dropped: int
    names: list[str]
    name: list[int]
    start_ns: list[int]
    duration_ns: list[int]
    beside: list[str]

    @property
    def label(self) -> str:
        return f"rank {self.rank} {self.role}"

    @property
    def first_ns(self) -> int | None:
        """When the earliest span began; spans are in the order in which they ended."""
        return min(self.start_ns, default=None)


def _read_part(path: Path) -> _Part | None:
    try:
        return _Part(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        log.warning("trace: %s left out: %s", path, error)
        return None


def _events(part: _Part, origin: int) -> Iterator[str]:
    """The JSON of every trace event of one rank: its name, then its spans."""
    pid = part.rank
    yield _metadata(pid, "process_name", name=part.label)
    yield _metadata(pid, "process_sort_index", sort_index=pid)
    yield _metadata(pid, "thread_name", name=part.role)
    if part.dropped:
        yield _metadata(pid, "process_labels", labels=f"{part.dropped} spans dropped")
    # Formatted by hand: several times faster than json.dumps, and times keep their nanoseconds
    # (a double has wall-clock times in microseconds to 0.25 only).
    tracks = {name: 1 + place for place, name in enumerate(part.beside)}
    for beside, track in tracks.items():
        yield _metadata(pid, "thread_name", tid=track, name=beside)
    heads = [
        f'{{"name":{json.dumps(name)},"ph":"X","pid":{pid},"tid":{tracks.get(name, 0)},'
        for name in part.names
    ]
    for name, start, duration in zip(part.name, part.start_ns, part.duration_ns, strict=True):
        yield f'{heads[name]}"ts":{_microseconds(start - origin)},"dur":{_microseconds(duration)}}}'


def _metadata(pid: int, kind: str, tid: int = 0, **args: object) -> str:
    return json.dumps({"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args})


def _microseconds(ns: int) -> str:
    """``ns`` >= 0 as a decimal number of microseconds, exact."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _wall_minus_perf_counter() -> int:
    """The difference between ``time_ns()`` and ``perf_counter_ns()``."""
    before = time.perf_counter_ns()
    wall = time.time_ns()
    return wall - (before + time.perf_counter_ns()) // 2
