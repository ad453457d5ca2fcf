"""How MPICH's and Open MPI's launchers are called and stopped."""

from __future__ import annotations

import signal

from exarl.comm.launcher import Launcher


def test_mpich_is_asked_for_ranks_and_nothing_else() -> None:
    launcher = Launcher("mpiexec")
    assert launcher.command(3, ["python", "job.py"]) == ["mpiexec", "-n", "3", "python", "job.py"]
    assert launcher.stop_signal == signal.SIGTERM


def test_open_mpi_neither_counts_cores_nor_binds_ranks() -> None:
    launcher = Launcher("/usr/bin/mpiexec", open_mpi=5)
    words = launcher.command(2, ["a", "-b"])
    assert words[0] == "/usr/bin/mpiexec"
    assert words[-4:] == ["-n", "2", "a", "-b"]
    assert words[1:-4] == ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    assert launcher.stop_signal == signal.SIGUSR1
