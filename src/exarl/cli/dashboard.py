"""``exarl dashboard``: runs in the browser, live."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path

from exarl.cli import words as line
from exarl.cli.runs import usual_folder
from exarl.errors import ConfigError

HELP = """\
usage: exarl dashboard [FOLDER] [--port N] [--control] [--no-browser]

Shows the runs in FOLDER and in the folders below it in the browser, live: states, learning curves,
what ranks spend their time on, failures, logs, and comparisons. It reads the runs' files only, so it
works on any machine that shares their disk. It answers on this machine alone (127.0.0.1), and only
with the token in the address that it prints. Ctrl-C ends it; the runs go on.

  FOLDER        default: results_dir if it exists, otherwise the working folder
  --port N      default 8787; 0 takes any free one
  --control     adds a button that stops a run (on this machine) after a checkpoint
  --no-browser  only print the address; from your own machine:  ssh -L 8787:127.0.0.1:8787 HOST
"""
PORT = 8787


def dashboard(words: list[str]) -> int:
    port = line.take_count(words, "port", PORT, least=0)
    control, quiet = line.take_flag(words, "control"), line.take_flag(words, "no_browser")
    given = line.take_path(words, "folder") if words else None
    line.nothing_left(words)
    folder = Path(given or usual_folder())
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder")
    if port > 65_535:
        raise ConfigError(f"port is a number from 0 to 65535, not {port} (command line)")

    from exarl.dashboard.server import Dashboard

    with Dashboard(folder, port, control=control) as server, ended_by_signals():
        sys.stdout.write(f"{server.address}\nCtrl-C ends the dashboard, not the runs\n")
        sys.stdout.flush()
        if not quiet:  # a browser of the terminal would wait for the page, and the page for us
            threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stdout.write("\n")
    return 0


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM interrupt, also in a background job of a script, where Ctrl-C is ignored."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
