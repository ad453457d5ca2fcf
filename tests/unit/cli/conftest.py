"""The command line inside this process, in an empty folder with an empty home."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from exarl.cli import main as cli


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    def refused(self, *parts: str) -> None:
        """Exit code 2 and one line on standard error that holds ``parts``; nothing else."""
        assert self.code == 2, self
        assert self.out == "", self
        assert self.err.startswith("exarl: "), self
        assert self.err.count("\n") == 1, self
        assert self.err.endswith("\n"), self
        for part in parts:
            assert part in self.err, self


Exarl = Callable[..., Answer]


@pytest.fixture
def exarl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Exarl:
    """``exarl("train", "--nope")``"""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))

    def call(*words: str) -> Answer:
        code = cli.main(list(words))
        return Answer(code, *capsys.readouterr())

    return call
