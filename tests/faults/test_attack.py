"""``benchmarks.attack`` makes its tries, holds where EXARL holds, and can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zmq")

ROOT = Path(__file__).parents[2]
ALL = ("kills", "checkpoints", "tampered", "clients", "environments", "parallel", "mistakes")


def attack(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a temporary folder of ``folder``."""
    command = [sys.executable, "-m", "benchmarks.attack", *words]
    variables = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=840, check=False
    )


def rows(table: str) -> dict[str, list[str]]:
    """The cells of each line of the table after its name."""
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {line[0]: line[1:] for line in lines}


def test_a_few_tries(tmp_path: Path) -> None:
    done = attack(tmp_path, "--class", "mistakes", "--tries", "5", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(done.stdout)["mistakes"][:3] == ["5", "5", "0"]
    assert list(tmp_path.iterdir()) == [], "it cleans up"


@pytest.mark.slow
def test_a_break_is_told_with_what_repeats_it(tmp_path: Path) -> None:
    """An EXARL whose export always fails is found out, and the try it names fails again."""
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import exarl.cli.export as e\n"
        "def export(words): raise ZeroDivisionError('planted')\n"
        "e.export = export\n"
    )
    (tmp_path / "work").mkdir()
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        words = ("--class", "mistakes", "--seed", "1", "--jobs", "1")
        done = attack(tmp_path / "work", *words, "--tries", "25")
        assert done.returncode == 1
        told = [line for line in done.stdout.splitlines() if line.startswith("BROKE ")]
        again = attack(tmp_path / "work", *told[0].split()[4:])
    assert told
    assert "ZeroDivisionError: planted" in done.stdout
    assert again.returncode == 1
    assert rows(again.stdout)["all"][:3] == ["1", "0", "1"]


@pytest.mark.slow
@pytest.mark.timeout(900)  # a try of each class starts several runs; CI's machine is slow
def test_tries_of_each_class(tmp_path: Path) -> None:
    done = attack(tmp_path, "--tries", "2", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [rows(done.stdout)[kind][:3] for kind in ALL] == [["2", "2", "0"]] * len(ALL)
