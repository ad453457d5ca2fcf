"""``--procs N``: the same command under mpiexec, with its signals and its error passed on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from exarl.errors import ConfigError
from exarl.experiment import ERROR_FILE


def find_mpiexec() -> str:
    """The launcher beside this Python, else the one on the path."""
    beside = Path(sys.executable).parent
    found = shutil.which("mpiexec", path=str(beside)) or shutil.which("mpiexec")
    if found is None:
        raise ConfigError("--procs needs mpiexec; install an MPI library or the extra 'exarl[mpi]'")
    return found


def launch(procs: int, words: Sequence[str]) -> int:
    """Run ``exarl WORDS`` on so many ranks; the exit code of the job.

    Stop signals go to the ranks, which checkpoint and end. When a rank fails, its traceback is
    written last, after whatever the launcher has to say.
    """
    with tempfile.TemporaryDirectory(prefix="exarl-") as scratch:
        error = Path(scratch) / "error"
        command = [find_mpiexec(), "-n", str(procs), sys.executable, "-m", "exarl", *words]
        environment = {**os.environ, ERROR_FILE: str(error)}
        # A session of its own keeps the terminal's Ctrl-C from reaching the ranks twice.
        job = subprocess.Popen(command, env=environment, start_new_session=True)
        previous = {
            number: signal.signal(number, lambda received, _: job.send_signal(received))
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        }
        try:
            code = job.wait()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            if job.poll() is None:
                job.kill()
        if error.exists():
            sys.stderr.write("\n" + error.read_text(encoding="utf-8").rstrip() + "\n")
    return code if code >= 0 else 128 - code
