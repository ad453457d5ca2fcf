"""Which tests enter which functions: recorded by one run of the fast tests, kept in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
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
        """Tests that may notice a mutant: those named after its module, then, of those that enter its
        function, the fastest of each file, then the second fastest of each, and so on.

        A function that JAX compiles, or whose result is kept, is entered once per process, so that the
        record lacks later tests: all that are named after the module are taken. Those beyond
        ``limit_s`` seconds in all are left out.
        """
        found = set(self.entered.get(f"{mutant.file}:{mutant.function}", ()))
        room, _, module = mutant.file.removesuffix(".py").rpartition("/")
        prefix = f"tests/unit/{room}/test_{module}"
        found |= {test for test in self.seconds if test.startswith(prefix)}
        known = sorted(
            (test for test in found if test in self.seconds), key=self.seconds.__getitem__
        )
        place: dict[str, int] = {}
        by_file: Counter[str] = Counter()
        for test in known:
            file = test.partition("::")[0]
            place[test] = by_file[file]
            by_file[file] += 1
        known.sort(key=lambda test: (not test.startswith(prefix), place[test], self.seconds[test]))
        total, taken = 0.0, []
        for test in known:
            total += self.seconds[test]
            if taken and total > limit_s:
                break
            taken.append(test)
        return taken


def record(folders: list[str], jobs: int) -> Reach:
    """Run the fast tests of these folders once and note what they enter; SystemExit if none passes."""
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
        reach = _read(Path(notes))
    if not reach.seconds:
        raise SystemExit("no test passed in the run that records what tests enter")
    return reach


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
