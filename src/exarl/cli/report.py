"""``exarl report``: one page about one or many runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from exarl.cli import words as line
from exarl.errors import ConfigError, did_you_mean
from exarl.records.directory import expand

HELP = """\
usage: exarl report RUN... [--out FILE] [--group-by KEY] [--x steps|time|updates]

Writes one HTML page about runs: learning curves with bands over seeds, evaluations, losses, throughput,
where the time went, policy lag, failures, and what differs between their configurations. It needs
no network to be read, and can be sent as it is.

  RUN             run directories, or folders of them (a study of 'exarl sweep' too)
  --out FILE      where to (default: report.html in the run, of several runs here)
  --group-by KEY  runs with the same value of this parameter are one group
                  (default: runs that differ in nothing but their seed)
  --x AXIS        the axis shown first: steps (default), time or updates
"""


def report(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(HELP)
        return 0
    out = line.take(words, "out")
    key = line.take(words, "group_by")
    axis = line.take(words, "x") or "steps"

    from exarl.report.figures import AXES
    from exarl.report.groups import make_groups
    from exarl.report.page import plotly_script, write_page
    from exarl.report.read import find_runs, read_run
    from exarl.report.runs import sections

    if axis not in AXES:
        hint = did_you_mean(axis, AXES) or f" (there are {', '.join(AXES)})"
        raise ConfigError(f"--x knows no axis '{axis}'{hint}")
    if unknown := [word for word in words if word.startswith("--")]:
        raise ConfigError(f"unexpected '{unknown[0]}' on the command line")
    if not words:
        raise ConfigError("which run directory? it comes right after the command")
    plotly_script()
    paths = find_runs(words)
    path = check_file(out, paths)
    groups = make_groups([read_run(run) for run in paths], key)
    counted = f"{len(paths)} run{'s' * (len(paths) > 1)}"
    lead = f"{counted}, read on {time.strftime('%Y-%m-%d at %H:%M')}"
    title = " against ".join(group.label for group in groups)
    title = title if len(title) < 80 else f"{len(groups)} groups of runs"
    size = write_page(path, f"EXARL: {title}", sections(groups, axis), lead)
    sys.stdout.write(f"report of {counted}: {path} ({size / 1e6:.1f} MB)\n")
    return 0


def check_file(out: str | None, runs: list[Path]) -> Path:
    """Where the page goes; ConfigError when it cannot go there, before anything is read."""
    if out is None:
        path = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
    else:
        path = expand(out)
    if path.is_dir() or not path.parent.is_dir():
        what = "it is a folder" if path.is_dir() else f"no folder {path.parent}"
        raise ConfigError(f"cannot write {path}: {what}")
    return path
