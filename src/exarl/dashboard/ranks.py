"""The ranks of a run: what each spends its time on, its memory, its logs, and failures in them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from exarl.dashboard.tail import Tail, as_object
from exarl.records.directory import RunDirectory, open_regular
from exarl.records.metrics import finite
from exarl.report.figures import Spent
from exarl.types import FAILURES

MOST_SPANS = 240
"""Intervals that are kept per rank; two neighbours become one when there are more."""
MOST_TRACE_BYTES = 200 << 20
"""Larger traces are for Perfetto."""
LOG_BYTES = 1 << 16
"""Bytes of a log that one answer holds."""
_NAME = re.compile(r"(rank|env)_\w+\.(log|out)")
_LANES = re.compile(r"lanes_(\d+)\.jsonl")
_FAILED = re.compile(
    rf"environment (\d+): .*\(({'|'.join(FAILURES)}); .*it is restarted".encode(), re.ASCII
)
_SPAN = re.compile(rb'"name":"(\w+)","ph":"X","pid":(\d+),"tid":0,"ts":(\d+\.\d+),"dur":(\d+\.\d+)')
_RANK = re.compile(rb'"process_name".*"name": "rank (\d+) (\w+)"')


@dataclass(frozen=True)
class Interval:
    """An interval of a rank's time, in seconds, and the seconds of each phase in it."""

    begin: float
    end: float
    seconds: Mapping[str, float]


@dataclass
class Lane:
    """A rank's time as at most ``MOST_SPANS`` intervals, and its memory."""

    role: str = ""
    memory_mb: float | None = None
    spans: list[Interval] = field(default_factory=list)
    total: dict[str, float] = field(default_factory=dict)
    _width: float = 0.0  # seconds that an interval spans at least

    def add(self, span: Interval) -> None:
        self.total = _sum(self.total, span.seconds)
        last = self.spans[-1] if self.spans else None
        if last is not None and last.end - last.begin + span.end - span.begin <= self._width:
            self.spans[-1] = _joined(last, span)
        else:
            self.spans.append(span)
        if len(self.spans) > MOST_SPANS:
            pairs = zip(self.spans[::2], self.spans[1::2], strict=False)
            rest = self.spans[len(self.spans) // 2 * 2 :]
            self.spans = [_joined(a, b) for a, b in pairs] + rest
            self._width = 2 * (self.spans[-1].end - self.spans[0].begin) / MOST_SPANS


def _joined(a: Interval, b: Interval) -> Interval:
    return Interval(a.begin, b.end, _sum(a.seconds, b.seconds))


def _sum(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in {**a, **b}}


class Ranks:
    """What the files of a run's ranks have told so far; ``update`` reads what is new."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._tails: dict[str, Tail] = {}
        self._trace: tuple[int, int] | None = None
        self.lanes: dict[int, Lane] = {}
        self.failures: dict[int, Counter[str]] = {}

    def update(self) -> None:
        for name in sorted(log_names(self._run, every=True)):
            if found := _LANES.fullmatch(name):
                self._read_lane(name, int(found[1]))
            elif name.startswith("rank_"):
                self._read_log(name)
        if not self.lanes:
            self._read_trace()

    def split(self, role: str) -> dict[str, float]:
        """The fraction of each phase in the time of all ranks of this role."""
        lanes = [lane for lane in self.lanes.values() if lane.role == role]
        total: dict[str, float] = {}
        for lane in lanes:
            total = _sum(total, lane.total)
        whole = sum(lane.spans[-1].end - lane.spans[0].begin for lane in lanes if lane.spans)
        whole = max(whole, sum(total.values()))
        return {name: seconds / whole for name, seconds in total.items()} if whole else {}

    def _tail(self, name: str) -> Tail:
        return self._tails.setdefault(name, Tail(self._run.logs / name))

    def _read_lane(self, name: str, rank: int) -> None:
        lines, fresh = self._tail(name).read()
        if fresh or rank not in self.lanes:
            self.lanes[rank] = Lane()
        lane = self.lanes[rank]
        for line in lines:
            row = as_object(line)
            end, parts = finite(row or {}, "t"), (row or {}).get("s")
            if row is None or end is None or not isinstance(parts, dict):
                continue
            seconds = {str(n): s for n in parts if (s := finite(parts, n)) is not None and s > 0}
            lane.role = str(row.get("role", ""))
            lane.memory_mb = finite(row, "rss_mb")
            begin = lane.spans[-1].end if lane.spans else end - sum(seconds.values())
            lane.add(Interval(min(begin, end), end, seconds))

    def _read_log(self, name: str) -> None:
        for line in self._tail(name).read()[0]:
            if found := _FAILED.search(line):
                self.failures.setdefault(int(found[1]), Counter())[found[2].decode()] += 1

    def _read_trace(self) -> None:
        """The lanes of a trace, second by second; it is whole when it appears. Inference is not told
        from the environment there."""
        try:
            with open(open_regular(self._run.trace), "rb") as file:
                seen = os.fstat(file.fileno())
                if (mark := (seen.st_ino, seen.st_mtime_ns)) == self._trace:
                    return
                self._trace = mark
                if seen.st_size > MOST_TRACE_BYTES:
                    return
                seconds: dict[int, dict[int, dict[str, float]]] = {}
                for line in file:
                    if found := _SPAN.search(line):
                        spent = float(found[4]) / 1e6
                        at = int(float(found[3]) / 1e6 + spent)
                        parts = seconds.setdefault(int(found[2]), {}).setdefault(at, {})
                        name = "env" if found[1] == b"rollout" else found[1].decode()
                        parts[name] = parts.get(name, 0.0) + spent
                    elif found := _RANK.search(line):
                        self.lanes[int(found[1])] = Lane(found[2].decode())
        except OSError:
            return
        for rank, by_second in seconds.items():
            lane = self.lanes.setdefault(rank, Lane())
            before = 0.0
            for at, parts in sorted(by_second.items()):
                lane.add(Interval(before, at + 1.0, parts))
                before = at + 1.0


def log_names(run: RunDirectory, *, every: bool = False) -> list[str]:
    """The logs of a run, by name; ``every``: with the other files of its ranks."""
    try:
        with os.scandir(run.logs) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(names if every else [name for name in names if _NAME.fullmatch(name)])


def read_log(run: RunDirectory, name: str, begin: int) -> Mapping[str, object]:
    """A piece of a log from ``begin`` on (-1: its end), and where the next one begins.

    KeyError for a name that is not one of ``log_names``.
    """
    if name not in log_names(run):
        raise KeyError(name)
    path = run.logs / name
    try:
        with open(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            cut = begin < 0 or begin > size
            at = max(0, size - LOG_BYTES) if cut else begin
            file.seek(at)
            text = file.read(LOG_BYTES)
    except OSError:
        return {"text": "", "next": max(begin, 0), "fresh": begin < 0}
    if cut and at:
        text = text.partition(b"\n")[2]
    at = size if cut else at + len(text)
    return {"text": text.decode("utf-8", "replace"), "next": at, "fresh": cut}


def tracks(lanes: Mapping[int, Lane]) -> list[tuple[str, list[Spent]]]:
    """The lanes for a figure: for each rank its name and its intervals, from the first of all on."""
    begins = [lane.spans[0].begin for lane in lanes.values() if lane.spans]
    first = min(begins, default=0.0)
    return [
        (
            f"{rank} {lane.role}".strip(),
            [(each.begin - first, each.end - first, each.seconds) for each in lane.spans],
        )
        for rank, lane in sorted(lanes.items())
    ]
