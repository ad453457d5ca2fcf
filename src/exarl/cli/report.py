"""``exarl report``: one page about one or many runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from exarl.cli import words as line
from exarl.cli.targets import check_target
from exarl.errors import ConfigError
from exarl.records.directory import expand

HELP = """\
usage: exarl report RUN... [--out FILE] [--group-by KEY] [--x AXIS]

Writes one HTML page about runs: learning curves with bands over seeds, evaluations, losses, throughput,
use of time, policy lag, failures, and the differences between their configurations. The page is one
file and needs no network connection.

  RUN             run directories, or folders that contain them (also a study of 'exarl sweep')
  --out FILE      output file (default: report.html in the run's directory; for several runs, here)
  --group-by KEY  group runs by the value of this parameter
                  (default: runs that differ only in their seed are one group)
  --x AXIS        the axis shown first: steps (default), time, updates, simulations or core_hours
"""


def report(words: list[str]) -> int:
    out = line.take(words, "out")
    key = line.take(words, "group_by")
    axis = line.take(words, "x") or "steps"

    from exarl.display.curve import AXES
    from exarl.report.groups import make_groups
    from exarl.report.page import plotly_script, write_page
    from exarl.report.read import find_runs, read_run
    from exarl.report.runs import sections

    line.check_choice(axis, AXES, f"--x has no axis '{axis}'")
    if unknown := [word for word in words if word.startswith("--")]:
        raise ConfigError(f"unexpected '{unknown[0]}' on the command line")
    if not words:
        raise ConfigError("which run directory? it follows the command")
    plotly_script()
    paths = find_runs(words)
    path = (
        expand(out) if out else paths[0] / "report.html" if len(paths) == 1 else Path("report.html")
    )
    check_target(path)
    groups = make_groups([read_run(run) for run in paths], key)
    counted = f"{len(paths)} run{'s' * (len(paths) > 1)}"
    lead = f"{counted}, read on {time.strftime('%Y-%m-%d at %H:%M')}"
    title = " against ".join(group.label for group in groups)
    title = title if len(title) < 80 else f"{len(groups)} groups of runs"
    size = write_page(path, f"EXARL: {title}", sections(groups, axis), lead)
    sys.stdout.write(f"report of {counted}: {path} ({size / 1e6:.1f} MB)\n")
    return 0
