"""Attack EXARL: seven classes of tries, a table of what held, and how to see each break again.

    python -m benchmarks.attack [--class kills] [--tries 100] [--seed 0] [--jobs 2] [--keep FOLDER]
    python -m benchmarks.attack --class kills --try 17 --seed 0

Run it from the root of the repository. A full run takes half an hour on two cores. Everything is done
in a temporary folder; servers listen on loopback. With a C compiler file operations are made to fail as
well (failing_calls.c). The exit code is 0 only if everything held.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from benchmarks.attack.tries import Attempt, Result

ROOT = Path(__file__).parents[2]
CLASSES = ("kills", "checkpoints", "tampered", "clients", "environments", "parallel", "mistakes")
READY = "ATTACK_FOLDER"
LOUD = 100


def main() -> int:
    options = read_options()
    if READY not in os.environ:
        start_again(options)
    folder = Path(os.environ[READY])
    try:
        return attack(options, folder)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = ", ".join(CLASSES)
    parser.add_argument("--class", dest="kinds", action="append", choices=CLASSES, help=known)
    parser.add_argument("--tries", type=int, help="of each class (default: what each class says)")
    parser.add_argument("--try", dest="only", type=int, nargs="+", help="only these numbers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="tries at a time")
    parser.add_argument("--minutes", type=float, help="begin no try after this time")
    parser.add_argument("--keep", type=Path, help="work in this folder and leave everything there")
    return parser.parse_args()


def start_again(options: argparse.Namespace) -> None:
    """The same program with failing_calls.c preloaded and one thread; does not return."""
    from benchmarks.attack.jobs import LIBRARY, build_library

    made = options.keep or Path(tempfile.mkdtemp(prefix="exarl-attack-"))
    made.mkdir(parents=True, exist_ok=True)
    folder = made.resolve()
    library = build_library(folder)
    if library is None:
        print("no C compiler: file operations will not be made to fail", file=sys.stderr)
    else:
        os.environ |= {"LD_PRELOAD": str(library), LIBRARY: str(library)}
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        os.environ.pop(name, None)  # HOME says it all
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    os.environ |= {READY: str(folder), "PYTHONPATH": path, "TMPDIR": str(temporary(folder))}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks.attack", *sys.argv[1:]])


def temporary(folder: Path) -> Path:
    (folder / "tmp").mkdir(exist_ok=True)
    return folder / "tmp"


def warm_up() -> None:
    """Import what commands import, but neither JAX nor MPI, which survive no fork."""
    from exarl.cli import check, describe, evaluate, export, report, serve, train, watch  # noqa: F401

    for name in (
        "exarl.run.experiment",
        "exarl.report.page",
        "exarl.report.runs",
        "gymnasium.envs.classic_control.cartpole",
        "matplotlib.figure",
        "matplotlib.backends.backend_agg",
        "safetensors.numpy",
    ):
        importlib.import_module(name)


def attack(options: argparse.Namespace, folder: Path) -> int:
    """Make the tries and print the table."""
    from benchmarks.attack.jobs import adopt_orphans

    warm_up()
    adopt_orphans()
    started = time.monotonic()
    kinds = options.kinds or list(CLASSES)
    modules = {kind: load(kind) for kind in kinds}
    for kind, module in modules.items():
        module.prepare(references(folder))
        print(
            f"{kind}: ready after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True
        )
    tasks = [
        (kind, number, options.seed, str(folder))
        for kind, module in modules.items()
        for number in options.only or range(options.tries or module.TRIES)
    ]
    random.Random(options.seed).shuffle(tasks)  # heavy and light ones side by side
    end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    results: list[Result] = []
    with workers(options.jobs) as pool:
        for result in pool.imap_unordered(one, tasks):
            results.append(result)
            if result.attempt.broke:
                print(told(result, options.seed), flush=True)
            if len(results) % LOUD == 0:
                broken = sum(bool(each.attempt.broke) for each in results)
                spent = time.monotonic() - started
                note = f"{len(results)} of {len(tasks)} tries, {broken} broke, {spent:.0f} s"
                print(note, file=sys.stderr, flush=True)
            if time.monotonic() > end:
                break
    print(table(results, kinds, time.monotonic() - started))
    return 1 if not results or any(result.attempt.broke for result in results) else 0


@contextmanager
def workers(jobs: int) -> Iterator[multiprocessing.pool.Pool]:
    """Processes that make tries, forked from this one; they end, with all they started, with the
    context."""
    pool = multiprocessing.get_context("fork").Pool(jobs, initializer=become_worker)
    try:
        yield pool
    finally:
        pool.terminate()
        pool.join()


def become_worker() -> None:
    """Ctrl-C is for the process that started this one, which then says SIGTERM."""
    from benchmarks.attack.jobs import adopt_orphans

    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def load(kind: str) -> ModuleType:
    """The module of a class: ``TRIES``, ``prepare(folder)``, ``attempt(rng, folder, work)``."""
    return importlib.import_module(f"benchmarks.attack.{kind}")


def references(folder: Path) -> Path:
    (folder / "references").mkdir(exist_ok=True)
    return folder / "references"


def one(task: tuple[str, int, int, str]) -> Result:
    """Make one try; whatever goes wrong in it counts as a break."""
    from benchmarks.attack.jobs import kill_descendants

    kind, number, seed, name = task
    folder, started = Path(name), time.monotonic()
    scratch = folder / "tries" / f"{kind}-{number}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    rng = random.Random(f"{seed} {kind} {number}")
    try:
        found: Attempt = load(kind).attempt(rng, references(folder), scratch / "work")
    except Exception:  # noqa: BLE001 - a try that cannot be judged has not held
        found = Attempt("the attack itself failed", traceback.format_exc())
    finally:
        kill_descendants()
    if not found.broke:
        shutil.rmtree(scratch, ignore_errors=True)
    return Result(kind, number, found, time.monotonic() - started)


def told(result: Result, seed: int) -> str:
    """A break, and what to run to see it again."""
    again = f"python -m benchmarks.attack --class {result.kind} --try {result.number} --seed {seed}"
    return f"BROKE {again}\n  {result.attempt.what}\n  {result.attempt.broke}"


def table(results: list[Result], kinds: list[str], seconds: float) -> str:
    """One line for each class."""
    lines = ["| class | tries | held | broke | seconds |", "|---|---|---|---|---|"]
    for kind in [*kinds, "all"]:
        mine = [each for each in results if kind in (each.kind, "all")]
        broke = sum(bool(each.attempt.broke) for each in mine)
        spent = seconds if kind == "all" else sum(each.seconds for each in mine)
        lines.append(f"| {kind} | {len(mine)} | {len(mine) - broke} | {broke} | {spent:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
