"""``--procs``: a wrong number of ranks is refused, a right one starts mpiexec with the same words."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from exarl.launch import mpiexec

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
        ["--n_step", "50", "--block_steps", "32"],
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
    assert Path(mpiexec.find_mpiexec()) == MPIEXEC


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
