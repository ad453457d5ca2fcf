"""Where trainings run: child processes, and the commands of groups of ranks."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from exarl.comm.channel import find_mpiexec
from exarl.errors import ConfigError
from exarl.sweep.executors import Job
from exarl.sweep.executors.local import Local, TrainingProcess, thread_limits
from exarl.sweep.executors.mpi import Place, check_groups, command_for


def ended(child: TrainingProcess, patience: float = 20.0) -> int:
    deadline = time.monotonic() + patience
    while (code := child.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return code


def python(text: str, output: Path) -> TrainingProcess:
    return TrainingProcess([sys.executable, "-c", text], Job([], output, output.parent), {})


def test_a_crash_is_an_exit_code(tmp_path: Path) -> None:
    text = "import os, signal; print('hello', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    assert ended(python(text, tmp_path / "log")) == -signal.SIGSEGV
    assert (tmp_path / "log").read_text() == "hello\n"


def test_a_child_waits_for_the_last_one_in_its_place(tmp_path: Path) -> None:
    """As when a worker was killed and its training still writes a checkpoint."""
    log = tmp_path / "log"
    first = python("import time; time.sleep(0.5); print('first', flush=True)", log)
    second = python("print('second', flush=True)", log)
    third = python("print('third', flush=True)", log)
    third.terminate()
    assert ended(third) == -signal.SIGTERM
    assert ended(second) == 0
    assert ended(first) == 0
    assert log.read_text() == "first\nsecond\n"


def test_terminate_and_kill_reach_what_a_child_started(tmp_path: Path) -> None:
    stubborn = "import signal, time; signal.signal(15, lambda *a: print('15', flush=True))\n"
    child = python(
        stubborn + "print('up', flush=True)\nwhile True: time.sleep(0.01)", tmp_path / "log"
    )
    while "up" not in (tmp_path / "log").read_text():
        time.sleep(0.01)
    child.terminate()
    while "15" not in (tmp_path / "log").read_text():
        time.sleep(0.01)
    assert child.poll() is None
    child.kill()
    assert ended(child) == -signal.SIGKILL


def test_jobs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert Local(slots=2, procs=4)._environ["OMP_NUM_THREADS"] == "2"
    assert Local(slots=99)._environ["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert thread_limits(8)["OMP_NUM_THREADS"] == "3"


def test_ranks_come_out_even() -> None:
    assert [check_groups(world, procs) for world, procs in ((6, 1), (6, 3), (2, 2))] == [6, 2, 1]
    with pytest.raises(ConfigError, match=r"7 ranks make no groups of 3; 6 or 9 would"):
        check_groups(7, 3)
    with pytest.raises(ConfigError, match=r"2 ranks make no groups of 3; 3 would"):
        check_groups(2, 3)


A, B = Place("a", (0, 1)), Place("b", (0, 1))


def test_the_command_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, mpiexec = [sys.executable, "-P", "-m", "exarl", "train"], find_mpiexec()
    assert command_for([A], ["train"], {}, "MPICH") == plain
    here = command_for([A, A], ["train"], {}, "MPICH")
    assert here == [mpiexec, "-n", "2", "-launcher", "fork", "-hosts", "a:2", *plain]
    across = command_for([A, A, B], ["train"], {}, "MPICH")
    assert across == [mpiexec, "-n", "3", "-hosts", "a:2,b:1", *plain]
    other = command_for([A, B], ["train"], {}, "Open MPI v5.0")
    assert other == [mpiexec, "-n", "2", "--host", "a:1,b:1", *plain]
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/bin/{name}")
    slurm = command_for([A, B], ["train"], {"SLURM_JOB_ID": "1"}, "MPICH")
    assert slurm == ["srun", "--overlap", "--exact", "-n", "2", "-w", "a,b", "-N", "2", *plain]
