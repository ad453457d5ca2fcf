"""The live panel reaches the user's terminal through an MPI launcher."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

from support.jobs import MPIEXEC

from exarl.display.terminal import columns, launcher_terminal

ASKED = """
import sys
from exarl.display.progress import make_progress
from exarl.display.terminal import launcher_terminal
print("found", launcher_terminal(sys.stderr), flush=True)
progress = make_progress("title", {"total_steps": 10}, sys.stderr)
progress.update({"timesteps_total": 5, "steps_per_s": 1.0})
progress.close()
"""


def on_terminal(command: Sequence[str], width: int) -> str:
    """What a command shows on a terminal of its own."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
        )
        name = os.ttyname(theirs)
        os.close(theirs)
        theirs = -1
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # the last writer is gone
            pass
        assert process.wait(60) == 0, shown
        return shown.decode(errors="replace").replace(name, "THE TERMINAL")
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)


def test_a_rank_finds_the_terminal_of_its_launcher() -> None:
    shown = on_terminal([MPIEXEC, "-n", "1", sys.executable, "-c", ASKED], 70)
    assert "found THE TERMINAL" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "╭─ title " in plain and f"╰{'─' * 68}╯" in plain
    assert "\x1b[?25l" not in shown  # a killed rank could not show the cursor again


def test_a_file_is_no_terminal(tmp_path: Path) -> None:
    """Neither where the launcher writes into a file, nor where no launcher is there."""
    with (tmp_path / "errors").open("wb") as file:
        done = subprocess.run(
            [MPIEXEC, "-n", "1", sys.executable, "-c", ASKED],
            stdout=subprocess.PIPE, stderr=file, stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    assert b"found None" in done.stdout
    assert "╭" not in (tmp_path / "errors").read_text()
    assert launcher_terminal(sys.stderr) is None
    assert columns("/dev/null") is None
