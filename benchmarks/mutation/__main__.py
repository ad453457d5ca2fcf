"""Change one operator of the core at a time and see whether the fast tests notice.

    python -m benchmarks.mutation [--count 200] [--seed 0] [--jobs 2] [--rooms learning replay ...]

Run it from the root of the repository. At first the fast tests run once, to record which of them enter
which function (``--reach FILE`` keeps that for the next time). Then every mutant is tried in a copy of
the code with the tests that enter its function, until one fails or does not end. Printed are a table by
room and every mutant that no test noticed, which ``--only agents/dqn.py:88`` tries again. The exit code
is 0 if ``--goal`` of them were noticed.
"""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.mutation.mutants import Mutant, sample
from benchmarks.mutation.reach import Reach, load, record, save
from benchmarks.mutation.trial import Workshop
from benchmarks.source import read_sources

ROOMS = ("learning", "replay", "networks", "agents", "acting", "training", "comm", "records")
TESTS = ["tests/unit", "tests/contract", "tests/mpi", "tests/faults"]


def main() -> int:
    options = read_options()
    sources = [source for source in read_sources() if source.room in options.rooms]
    mutants = sample(sources, options.count, options.seed)
    if options.only:
        mutants = [m for m in mutants if f"{m.file}:{m.line}" in options.only]
    if options.list:
        print("\n".join(map(str, mutants)))
        return 0
    reach = recorded(options)
    began = time.monotonic()
    noticed = try_all(mutants, reach, options)
    report(mutants, noticed, reach, time.monotonic() - began)
    return 0 if sum(noticed) >= options.goal * len(mutants) else 1


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=200, help="mutants (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="of their choice")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--rooms", nargs="+", default=ROOMS, help=" ".join(ROOMS))
    parser.add_argument("--tests", nargs="+", default=TESTS, help=" ".join(TESTS))
    parser.add_argument("--reach", type=Path, help="file of what tests enter; made if missing")
    parser.add_argument("--seconds", type=float, default=90, help="of tests per mutant at most")
    parser.add_argument("--goal", type=float, default=0.9, help="share that must be noticed")
    parser.add_argument("--only", nargs="+", metavar="FILE:LINE", help="try these of them again")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    return parser.parse_args()


def recorded(options: argparse.Namespace) -> Reach:
    if options.reach is not None and options.reach.exists():
        return load(options.reach)
    reach = record(options.tests, options.jobs)
    if options.reach is not None:
        save(reach, options.reach)
    return reach


def try_all(mutants: Sequence[Mutant], reach: Reach, options: argparse.Namespace) -> list[bool]:
    """Whether each mutant was noticed; several are tried at a time, each in a copy of its own."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        folder = Path(name)
        compiled = folder / "compiled"
        compiled.mkdir()
        workshops: queue.Queue[Workshop] = queue.Queue()
        for job in range(options.jobs):
            workshops.put(Workshop(folder / str(job), compiled))

        def attempt(mutant: Mutant) -> bool:
            workshop = workshops.get()
            began = time.monotonic()
            noticed = workshop.notices(mutant, reach, options.seconds)
            workshops.put(workshop)
            said = "noticed" if noticed else "UNNOTICED"
            print(f"{said:<9} {time.monotonic() - began:5.1f} s  {mutant}", file=sys.stderr)
            return noticed

        with ThreadPoolExecutor(options.jobs) as pool:
            return list(pool.map(attempt, mutants))


def report(
    mutants: Sequence[Mutant], noticed: Sequence[bool], reach: Reach, seconds: float
) -> None:
    """Print the table and what was not noticed."""
    both = list(zip(mutants, noticed, strict=True))
    print(f"{'room':<12} {'mutants':>8} {'noticed':>8} {'share':>6}")
    rooms = [(room, [seen for m, seen in both if m.room == room]) for room in ROOMS]
    others = [seen for m, seen in both if m.room not in ROOMS]
    for room, found in [*rooms, ("others", others), ("all", list(noticed))]:
        if found:
            share = sum(found) / len(found)
            print(f"{room:<12} {len(found):>8} {sum(found):>8} {share:>6.1%}")
    print(f"{seconds:.0f} s, {len(reach.seconds)} tests known\n")
    for mutant in sorted((m for m, seen in both if not seen), key=str):
        entered = reach.tests_for(mutant, float("inf"))
        print(f"{mutant}   [{len(entered)} tests enter the function]")


if __name__ == "__main__":
    sys.exit(main())
