"""The runs below a folder, and what a page shows of them, as JSON; nothing is read unless asked for."""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from exarl.dashboard.ranks import Ranks, log_names
from exarl.dashboard.tail import Rows, sampled
from exarl.dashboard.views import one_run, several_runs
from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory
from exarl.records.metrics import finite
from exarl.records.state import RUNNING, UNKNOWN
from exarl.report.page import Fragment, Section, fragment
from exarl.report.read import DEPTH, describe, find_runs, read_run

MOST_COMPARED = 60
CURVE_POINTS = 40
"""Points of the small curve of a run in the list."""
_COMPARED_ROWS = 200
_LEAST_S = 0.9  # between two looks at the same files
_REST = 12  # times as long as a look took: so looks take less than a tenth of a core
_SCAN_S = 5.0  # between two searches for new runs
_CHECK_S = 5.0  # between two looks at whether a silent process is alive
_VIEWS = 8  # that are kept for further questions
_AT_ONCE = 8

T = TypeVar("T")


class Paced(Generic[T]):
    """A value that is computed again only when it is old, by what computing it takes."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._until = 0.0
        self._value: T | None = None

    def get(self, compute: Callable[[], T]) -> T:
        began = time.monotonic()
        if self._value is None or began >= self._until:
            self._value = compute()
            done = time.monotonic()
            self._until = max(began + self._least_s, done + _REST * (done - began))
        return self._value


@dataclass
class Card:
    """A run in the list: what is shown, and the version of the list in which it changed."""

    shown: dict[str, Any] = field(default_factory=dict)
    version: int = 0
    mark: tuple[tuple[int, int], ...] = ()
    checked: float = 0.0


class View:
    """The sections of one page, drawn when asked for, and the files that were read for it."""

    def __init__(self, runs: Mapping[str, Path], x: str) -> None:
        self._x = x
        self._runs = [RunDirectory(path) for path in runs.values()]
        self._pace: Paced[list[tuple[Section, Fragment, str]]] = Paced(_LEAST_S)
        self._mark: object = None
        self._drawn: list[tuple[Section, Fragment, str]] = []
        alone = len(self._runs) == 1
        self._rows = Rows(self._runs[0].result) if alone else None
        self._ranks = Ranks(self._runs[0]) if alone else None

    def sections(self) -> list[tuple[Section, Fragment, str]]:
        """Each section, as HTML with figures, and a digest of both."""
        return self._pace.get(self._draw)

    def _draw(self) -> list[tuple[Section, Fragment, str]]:
        if self._rows is not None and self._ranks is not None:
            self._ranks.update()
            found = one_run(read_run(self._runs[0].path, self._rows.update()), self._ranks, self._x)
        else:
            mark = [_mark(run) for run in self._runs]
            if mark == self._mark:
                return self._drawn
            self._mark = mark
            read = [read_run(r.path, sampled(r.result, _COMPARED_ROWS)) for r in self._runs]
            found = several_runs(read, self._x)
        drawn = [(each, fragment(each, f"s{_digest(each.title)}")) for each in found]
        self._drawn = [(s, f, _digest(f.html, *f.figures.values())) for s, f in drawn]
        return self._drawn


class RunViews:
    """The runs below ``folder``. Names in its answers are the only ones that questions may use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()
        self._scan: Paced[dict[str, Path]] = Paced(_SCAN_S)
        self._looks: Paced[bool] = Paced(_LEAST_S)
        self._cards: dict[str, Card] = {}
        self._version = 0
        self._views: OrderedDict[tuple[str, ...], View] = OrderedDict()
        self._pool = ThreadPoolExecutor(_AT_ONCE)

    def changes(self, since: int = 0) -> str:
        """The runs that changed after version ``since`` of the list; all names, if any did."""
        with self._lock:
            self._looks.get(self._look)
            changed = [c.shown for c in self._cards.values() if c.version > since]
            answer: dict[str, object] = {
                "version": self._version,
                "now": round(time.time(), 1),
                "folder": str(self._folder),
                "count": len(self._cards),
                "runs": changed,
            }
            if since != self._version:
                answer["names"] = list(self._cards)
            return json.dumps(answer)

    def directory(self, name: str) -> RunDirectory:
        """The run of that name in the list; KeyError for any other text."""
        with self._lock:
            return RunDirectory(self._paths()[name])

    def view(self, names: Sequence[str], x: str, have: Collection[str] = ()) -> str:
        """The sections of a page about these runs; of those whose digests are in ``have`` only the
        digests. KeyError for a name that is not in the list."""
        with self._lock:
            paths = self._paths()
            runs = {name: paths[name] for name in names}
            view = self._views.setdefault((x, *runs), View(runs, x))
            self._views.move_to_end((x, *runs))
            while len(self._views) > _VIEWS:
                self._views.popitem(last=False)
            parts = [_as_json(*each, have) for each in view.sections()]
            logs = log_names(RunDirectory(runs[names[0]])) if len(runs) == 1 else []
        return f'{{"sections":[{",".join(parts)}],"logs":{json.dumps(logs)}}}'

    def _paths(self) -> dict[str, Path]:
        return self._scan.get(self._find)

    def _find(self) -> dict[str, Path]:
        try:
            found = find_runs([str(self._folder)], DEPTH + 1)  # studies in a folder of runs
        except ConfigError:
            return {}  # none yet, or not now
        return {_name(path, self._folder): path for path in found}

    def _look(self) -> bool:
        """Bring the list up to date. A run is read again when its files changed."""
        paths = self._paths()
        gone = self._cards.keys() - paths.keys()
        for name in gone:
            del self._cards[name]
        version = self._version + 1
        now = time.monotonic()
        due = []
        for name, path in paths.items():
            card = self._cards.setdefault(name, Card())
            mark = _mark(RunDirectory(path))
            open_ended = card.shown.get("state") in (RUNNING, UNKNOWN)
            if mark != card.mark or (open_ended and now - card.checked > _CHECK_S):
                card.mark, card.checked = mark, now
                due.append((card, name, path))
        changed = bool(gone)
        for (card, _, _), shown in zip(due, self._pool.map(_shown, due), strict=True):
            if shown != card.shown:
                card.shown, card.version, changed = shown, version, True
        self._version = version if changed else self._version
        return changed


def _shown(due: tuple[Card, str, Path]) -> dict[str, Any]:
    """What the list shows of a run."""
    _, name, path = due
    run = RunDirectory(path)
    shown = describe(path)
    age = shown.pop("age_s")
    rows = sampled(run.result, CURVE_POINTS)
    curve = [
        (steps, reward)
        for row in rows
        if (steps := finite(row, "timesteps_total")) is not None
        if (reward := finite(row, "episode_reward_mean")) is not None
    ]
    words = {key: str(shown[key] or "-") for key in ("agent", "env", "workflow", "state", "cause")}
    touched = round(time.time() - age)
    old = due[0].shown.get("touched", 0)
    same = abs(touched - old) <= 1  # rounding is no change
    return {
        **shown, **words, "run": name, "touched": old if same else touched,
        "curve": [[float(f"{x:.5g}"), float(f"{y:.4g}")] for x, y in curve],
    }  # fmt: skip


def _mark(run: RunDirectory) -> tuple[tuple[int, int], ...]:
    """What changes whenever a run's files do."""
    marks = []
    for file in (run.result, run.summary, run.lock, run.evaluations):
        try:
            seen = os.stat(file)  # noqa: PTH116 - one call per file, for a thousand runs
        except OSError:
            marks.append((0, 0))
        else:
            # The process that holds a lock touches it all the time.
            marks.append((0 if file == run.lock else seen.st_mtime_ns, seen.st_size))
    return tuple(marks)


def _name(path: Path, folder: Path) -> str:
    inside = path.relative_to(folder) if path.is_relative_to(folder) else path
    return str(inside).encode("utf-8", "replace").decode() if str(inside) != "." else folder.name


def _digest(*texts: str) -> str:
    found = blake2b(digest_size=6)
    for text in texts:
        found.update(text.encode("utf-8", "replace"))
    return found.hexdigest()


def _as_json(section: Section, drawn: Fragment, digest: str, have: Collection[str]) -> str:
    head = {"id": f"s{_digest(section.title)}", "digest": digest}
    if digest in have:
        return json.dumps(head)
    text = json.dumps(head | {"title": section.title, "html": drawn.html})
    figures = ",".join(f"{json.dumps(id)}:{figure}" for id, figure in drawn.figures.items())
    return f'{text[:-1]},"figures":{{{figures}}}}}'
