"""Which tests enter which functions: recorded by one run of the fast tests, kept in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutation.mutants import Mutant
from benchmarks.source import SOURCE

ROOT = Path(__file__).parents[2]
HOOK = Path(__file__).parent / "hook"


@dataclass(frozen=True)
class Reach:
    """What one run of the tests has shown."""

    seconds: dict[str, float]
    """How long each test took that has passed, by its id."""
    entered: dict[str, list[str]]
    """The ids of the tests that enter a function, by ``file:line``."""

    def tests_for(self, mutant: Mutant, limit_s: float) -> list[str]:
        """Tests that enter the mutant's function, those named after its module first, then by time.

        JAX traces a compiled function once per process, so that a later test does not enter it again:
        tests that are named after the module are taken too if any of them enters the function. Those
        beyond ``limit_s`` seconds in all are left out.
        """
        found = set(self.entered.get(f"{mutant.file}:{mutant.function}", ()))
        room, _, module = mutant.file.removesuffix(".py").rpartition("/")
        prefix = f"tests/unit/{room}/test_{module}"
        if any(test.startswith(prefix) for test in found):
            found |= {test for test in self.seconds if test.startswith(prefix)}
        known = [test for test in found if test in self.seconds]
        known.sort(key=lambda test: (not test.startswith(prefix), self.seconds[test]))
        total, taken = 0.0, []
        for test in known:
            total += self.seconds[test]
            if taken and total > limit_s:
                break
            taken.append(test)
        return taken


def record(folders: list[str], jobs: int) -> Reach:
    """Run the fast tests of these folders once and note what they enter."""
    with tempfile.TemporaryDirectory(prefix="mutation-notes-") as notes:
        environ = {
            **os.environ,
            "PYTHONPATH": f"{HOOK}{os.pathsep}{SOURCE.parent}",
            "MUTATION_NOTES": notes,
            "MUTATION_SOURCE": str(SOURCE),
        }
        words = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.mutation.plugin"]
        spread = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else []
        command = [*words, *spread, *folders]
        subprocess.run(command, cwd=ROOT, env=environ, stdout=sys.stderr, check=False)
        return _read(Path(notes))


def _read(notes: Path) -> Reach:
    seconds: dict[str, float] = defaultdict(float)
    entered: dict[str, set[str]] = defaultdict(set)
    failed = set()
    for path in sorted(notes.glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            kind, test, *rest = line.split("\t")
            if kind == "enters":
                entered[rest[0]].add(test)
            else:
                seconds[test] += float(rest[0])
                if rest[1] == "failed":
                    failed.add(test)
    passed = {test: took for test, took in sorted(seconds.items()) if test not in failed}
    return Reach(passed, {place: sorted(tests) for place, tests in sorted(entered.items())})


def load(path: Path) -> Reach:
    """What was recorded into a file; raises OSError if there is none."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return Reach(data["seconds"], data["entered"])


def save(reach: Reach, path: Path) -> None:
    """Keep it, for ``load``."""
    data = {"seconds": reach.seconds, "entered": reach.entered}
    path.write_text(json.dumps(data), encoding="utf-8")
