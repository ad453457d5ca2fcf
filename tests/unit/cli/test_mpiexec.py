"""``--procs``: a wrong number of ranks is refused, a right one starts mpiexec with the same words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from exarl.cli import mpiexec
from exarl.comm.launcher import Launcher

MPIEXEC = Path(sys.executable).parent / "mpiexec"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """What would have been started; nothing is."""
    calls: list[tuple[int, list[str]]] = []

    def launch(procs: int, words: Sequence[str], *_: object) -> int:
        calls.append((procs, list(words)))
        return 0

    monkeypatch.setattr(mpiexec, "launch", launch)
    return calls


@pytest.mark.parametrize(
    ("procs", "words"),
    [
        ("2", ["--process_per_env", "2"]),
        ("4", ["--process_per_env", "2"]),
        ("1", ["--process_per_env", "2"]),
        ("1", ["--learner_procs", "2"]),
        ("2", ["--learner_procs", "2"]),
        ("3", ["--learner_procs", "5"]),
        ("7", ["--learner_procs", "3", "--process_per_env", "3"]),
    ],
)
def test_a_wrong_count_is_refused_with_counts_that_work(
    exarl: Any, launched: list[Any], procs: str, words: list[str]
) -> None:
    exarl("train", "--procs", procs, *words).refused(f"{procs} rank", "ranks work")
    assert launched == []


def test_the_counts_named_are_near_the_one_asked_for(exarl: Any, launched: list[Any]) -> None:
    answer = exarl("train", "--procs", "10000", "--process_per_env", "7")
    answer.refused("9997", "10004")
    assert launched == []


@pytest.mark.parametrize(
    "words",
    [
        ["--nonsense", "1"],
        ["--env", "Nowhere-v0"],
        ["--n_step", "50", "--block_steps", "32", "--model_type", "LSTM"],
        ["--output_dir", "a_file"],
    ],
)
def test_any_other_mistake_is_refused_before_anything_starts(
    exarl: Any, launched: list[Any], words: list[str]
) -> None:
    Path("a_file").write_text("x")
    exarl("train", "--procs", "2", *words).refused()
    assert launched == []


def test_a_right_count_starts_the_same_command(exarl: Any, launched: list[Any]) -> None:
    answer = exarl("train", "--seed=3", "--procs", "3", "--process-per-env", "2", "--double")
    assert answer.code == 0, answer
    assert launched == [(3, ["train", "--seed=3", "--process-per-env", "2", "--double"])]


def test_serial_starts_nothing(exarl: Any, launched: list[Any]) -> None:
    exarl("train", "--procs", "2", "--serial", "--process_per_env", "2").refused("1 rank")
    assert launched == []


def test_the_launcher_beside_this_python_is_found_first() -> None:
    if not MPIEXEC.exists():
        pytest.skip("no mpiexec beside this Python")
    assert Path(mpiexec.find_launcher().path) == MPIEXEC


def test_without_a_launcher_the_remedy_is_named(
    exarl: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    exarl("train", "--procs", "2").refused("mpiexec", "exarl[mpi]")


@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside this Python")
def test_a_mistake_under_mpiexec_is_told_once(tmp_path: Path) -> None:
    command = [str(MPIEXEC), "-n", "2", sys.executable, "-m", "exarl", "train", "--nonsense"]
    environ = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environ, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("exarl: unknown parameter 'nonsense'") == 1
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# -- launchers ---------------------------------------------------------------------------------------

FAKE = """\
#!{python}
import os, signal, sys, time
if "--version" in sys.argv:
    print("mpiexec ({name}")
    sys.exit()
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda received, _: got.append(received))
print(*sys.argv[1:], os.environ.get("OMP_NUM_THREADS"), file=open("words", "w"))
while len(got) < {signals}:
    time.sleep(0.01)
print(*got, open(os.environ["EXARL_STOP_FILE"]).read(), file=open("got", "w"))
sys.exit(1)
"""


def fake(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, signals: int) -> None:
    """An ``mpiexec`` beside this Python which waits for N signals and notes them."""
    folder.mkdir()
    script = folder / "mpiexec"
    script.write_text(FAKE.format(python=sys.executable, name=name, signals=signals))
    script.chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.chdir(folder)


@pytest.mark.parametrize(
    ("name", "passed_on"),
    [
        ("Open MPI) 5.0.11", [signal.SIGUSR1]),
        ("OpenRTE) 4.1.4", [signal.SIGUSR1]),
        ("HYDRA) 5.0.2", [signal.SIGTERM]),
    ],
)
def test_a_stop_signal_reaches_the_ranks_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, passed_on: list[int]
) -> None:
    """Open MPI's launcher would kill them a second after SIGTERM."""
    fake(monkeypatch, tmp_path / "bin", name, signals=1)
    stopping = subprocess.Popen(
        ["sh", "-c", f"until [ -s words ]; do sleep 0.02; done; kill -TERM {os.getpid()}"]
    )
    assert mpiexec.launch(3, ["train"]) == 128 + signal.SIGTERM
    assert stopping.wait() == 0
    assert Path("got").read_text().split() == [*map(str, map(int, passed_on)), "15"]


def test_a_second_signal_goes_on_as_it_is(tmp_path: Path) -> None:
    sent: list[int] = []

    class Job:
        send_signal = staticmethod(sent.append)

    stop = mpiexec.Stop(Launcher("mpiexec", open_mpi=5), tmp_path / "stop")
    stop.pass_on(Job(), signal.SIGINT)  # type: ignore[arg-type]
    stop.pass_on(Job(), signal.SIGINT)  # type: ignore[arg-type]
    time.sleep(1.5 * mpiexec.ECHO_S)
    stop.pass_on(Job(), signal.SIGINT)  # type: ignore[arg-type]
    assert sent == [signal.SIGUSR1, signal.SIGUSR1, signal.SIGINT]


def test_more_ranks_than_cores_are_allowed_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, tmp_path / "bin", "Open MPI) 5.0.11", signals=0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    (tmp_path / "bin" / "mpiexec").write_text(
        (tmp_path / "bin" / "mpiexec")
        .read_text()
        .replace("sys.exit(1)", "sys.exit()")
        .replace('open(os.environ["EXARL_STOP_FILE"]).read()', "0")
    )
    assert mpiexec.launch(3, ["train"]) == 0
    assert capsys.readouterr().err == "exarl: 3 ranks share 2 cores\n"
    assert Path("words").read_text().split()[:6] == [
        *("--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n", "3")
    ]
    assert mpiexec.launch(2, ["train"]) == 0
    assert capsys.readouterr().err == ""


def test_ranks_do_not_inherit_the_threads_of_their_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from exarl.comm.threads import limit_threads

    for said, expected in ((None, "None"), ("7", "7")):
        fake(monkeypatch, tmp_path / f"bin{expected}", "HYDRA) 5", signals=0)
        environ = {"OMP_NUM_THREADS": said} if said else {}
        limit_threads(environ, cores=4)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        mpiexec.launch(2, ["train"])
        assert Path("words").read_text().split()[-1] == expected
