"""``exarl watch``: follow a run from its files, on any machine that shares its disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exarl.cli import words as line
from exarl.cli.train import closing_lines
from exarl.config import STOPS
from exarl.display.panel import plain_line
from exarl.display.progress import Progress, is_terminal, make_progress
from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory, open_run, read_json
from exarl.records.follow import Look, look
from exarl.records.state import FAILED, KILLED
from exarl.report.read import find_runs, learner_part

HELP = """\
usage: exarl watch RUN [--interval S] [--once]

Shows the progress of a run from its files, on this machine or on another one that shares the disk.
Ends with the run; the exit code is 1 if the run failed or was killed. Ctrl-C ends only the display.

  RUN           a run directory (it may be created later), or a folder: the newest run in it
  --interval S  seconds between updates (default 1; without a terminal, 10 between lines)
  --once        print the present state as plain lines and exit
"""
STUDY = "journal.log"


def watch(words: list[str]) -> int:
    path = line.take_path(words, "run directory")
    given = line.take(words, "interval")
    once = line.take_flag(words, "once")
    line.nothing_left(words)
    interval = seconds(given)
    if (Path(path) / STUDY).is_file():
        raise ConfigError(
            f"{path} is a study of many runs: use 'exarl sweep --study {path} --report', or watch"
            " one of its runs"
        )
    try:
        if once:
            return show_once(newest(path))
        return follow(wait_for_run(path, interval or 1.0), interval)
    except KeyboardInterrupt:
        return 130


def seconds(text: str | None) -> float | None:
    """The value of ``--interval`` in seconds; ConfigError if it is not valid."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 86_400:
        raise ConfigError(f"--interval is a number of seconds from 0.05 to 86400, not '{text}'")
    return value


def newest(path: str) -> RunDirectory:
    """The run at ``path``, or the most recently active run below it."""

    def touched(run: Path) -> float:
        files = [RunDirectory(run).result, RunDirectory(run).config]
        return max(file.stat().st_mtime for file in files if file.exists())

    return open_run(max(find_runs([path]), key=touched))


def wait_for_run(path: str, interval: float) -> RunDirectory:
    """Wait until there is a run at ``path``, and return ``newest(path)``."""
    announced = False
    while True:
        try:
            return newest(path)
        except ConfigError as error:
            if Path(path).is_file():
                raise
            if not announced:
                sys.stderr.write(f"{error}; waiting for it (Ctrl-C ends)\n")
                announced = True
        time.sleep(interval)


def follow(run: RunDirectory, interval: float | None) -> int:
    """Show the run until it ends."""
    config = learner_part(run)
    live = is_terminal(sys.stdout)
    stops = {name: config.get(name) for name in STOPS}
    progress = make_progress(title(config), stops, sys.stdout, live=live, interval=interval or 10.0)
    progress.note(f"run directory {run.path}")
    shown: Mapping[str, Any] = {}
    silent = False
    try:
        while True:
            seen = look(run)
            if seen.row and seen.row != shown:
                shown = seen.row
                progress.update(shown)
            if seen.ended:
                break
            silent = show_age(progress, run, seen, live, silent)
            time.sleep(interval or 1.0)
    finally:
        progress.close()
    sys.stdout.write(ending(run, seen, config))
    return int(seen.state.name in (FAILED, KILLED))


def show_age(progress: Progress, run: RunDirectory, seen: Look, live: bool, silent: bool) -> bool:
    """Show the age of the newest row: always on a panel, in plain lines once per silence.

    Return whether the run is silent, that is, its next row is overdue.
    """
    late = seen.age_s > seen.patience_s
    text = silence(run, seen) if late else f"last row {span(seen.age_s)} ago"
    if not seen.row and not late:
        text = "starting ..."
    if live or (late and not silent):
        progress.busy(text)
    return late


def show_once(run: RunDirectory) -> int:
    """Print the present state of the run as plain lines."""
    config, seen = learner_part(run), look(run)
    stops = {name: config.get(name) for name in STOPS}
    lines = [title(config), f"run directory {run.path}"]
    if seen.row:
        lines.append(plain_line(seen.row, stops, last=seen.ended))
    sys.stdout.write("\n".join(lines) + "\n")
    if seen.ended:
        sys.stdout.write(ending(run, seen, config))
    elif seen.age_s > seen.patience_s:
        sys.stdout.write(silence(run, seen) + "\n")
    else:
        sys.stdout.write(f"last row {span(seen.age_s)} ago\n" if seen.row else "no row yet\n")
    return 0


def silence(run: RunDirectory, seen: Look) -> str:
    try:
        host = f"; it was started on {read_json(run.manifest)['host']}"
    except (ConfigError, KeyError, TypeError):
        host = ""
    return f"no new row for {span(seen.age_s)}{host}"


def span(seconds: float) -> str:
    """A time in one unit: ``12 s``, ``3 min``, ``5.2 h``, ``4 d``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def title(config: Mapping[str, Any]) -> str:
    return " · ".join(str(config.get(key)) for key in ("agent", "env", "workflow"))


def ending(run: RunDirectory, seen: Look, config: Mapping[str, Any]) -> str:
    """The closing lines of ``exarl train``; for a failed or killed run, the cause and how to resume."""
    state = seen.state
    if state.name in (FAILED, KILLED):
        return f"{state.name:<14} {state.cause}\nto continue    exarl resume {run.path}\n"
    try:
        return closing_lines(seen.summary, run.path, config["reward_window"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{run.summary} is damaged: {error!r}") from error
