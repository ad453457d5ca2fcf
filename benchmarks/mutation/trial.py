"""One mutant in a copy of the code, and the tests that may notice it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.mutation.mutants import Mutant
from benchmarks.mutation.reach import ROOT, Reach
from benchmarks.source import SOURCE

FIRST = 25  # tests of the first of two runs: most mutants need no second
NOTICED, UNNOTICED, WRONG_TESTS = 1, 0, 4  # exit codes of pytest


class Workshop:
    """A copy of the code in a folder of its own, in which one mutant at a time is tried."""

    def __init__(self, folder: Path, compiled: Path) -> None:
        """``compiled`` is where JAX keeps programs from one run of the tests to the next."""
        self._source = folder / "src"
        self._temporary = folder / "tmp"
        self._words = folder / "tests.txt"
        shutil.copytree(SOURCE, self._source / "exarl", ignore=shutil.ignore_patterns("*.pyc"))
        self._environ = {
            **os.environ,
            "PYTHONPATH": str(self._source),
            "TMPDIR": str(self._temporary),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
            "EXARL_TESTS_COMPILED": str(compiled),
        }
        self._times = itertools.count(1_000_000_000)

    def notices(self, mutant: Mutant, reach: Reach, limit_s: float) -> bool:
        """Whether a test fails, or does not end, with the mutant in the code."""
        tests = reach.tests_for(mutant, limit_s)
        path = self._source / "exarl" / mutant.file
        text = (SOURCE / mutant.file).read_text(encoding="utf-8")
        self._write(path, mutant.apply(text))
        try:
            stages = [tests[:FIRST], tests[FIRST:]]
            return any(self._fails(stage, reach) for stage in stages if stage)
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        """Write a source file with a time of its own, by which Python knows that it is new."""
        path.write_text(text, encoding="utf-8")
        moment = next(self._times)
        os.utime(path, (moment, moment))

    def _fails(self, tests: Sequence[str], reach: Reach) -> bool:
        limit_s = 30 + 5 * sum(reach.seconds[test] for test in tests)
        code = self._run(tests, limit_s)
        if code == WRONG_TESTS:  # the mutant has changed the tests' ids
            files = sorted({test.partition("::")[0] for test in tests})
            code = self._run(files, limit_s)
            if code == WRONG_TESTS:
                raise SystemExit(f"the record of the tests is out of date: {' '.join(files)}")
        return code != UNNOTICED

    def _run(self, tests: Sequence[str], limit_s: float) -> int:
        """The exit code of pytest; a run that does not end is a failed one."""
        self._temporary.mkdir(exist_ok=True)
        self._words.write_text("\n".join(tests), encoding="utf-8")
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [*words, f"@{self._words}"],
            cwd=ROOT,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return NOTICED
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            shutil.rmtree(self._temporary, ignore_errors=True)
