"""How many source files an experience passes, from the environment's step to new weights and back.

    python -m benchmarks.block_path [--workflow serial sync async ...] [--list] [--source DIR]

Run it from the root of the repository. Each workflow trains DQN-v0 on CartPole-v1 for a moment in a
temporary folder: ``serial`` is ``sync`` in one process, ``fused`` and ``elastic`` start what they need,
the others have 2 ranks. All threads of every process note the source files of EXARL whose functions are
called or return. A process begins at its first mark and ends ``BLOCKS`` blocks later; a process without
marks is not part of the path. Marks are calls of

- the environment's step (Gymnasium's ``CartPoleEnv.step``): ``BLOCK_STEPS`` of them are a block;
- the agent's ``train``: one block, for a learner without environments;
- in ``fused``: the first trace of the reset, which only begins, and ``jax.device_get``: one block.

The first update follows the first block, so files that are traced for it (losses, networks) count. The
start and the end of the run do not, nor do checkpoints and evaluations: none is made.

"entered" counts all these files, "handle it" those where an argument (other than ``self``) or a result
of a function is or holds data, see ``holds_data``. The row "DQN's update" is the first call of the
agent's ``train`` in ``serial``, until it returns. ``--list`` names the files, with * if they handle it.
A file counts once and with all its lines, whatever part of it runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parents[1]
BLOCKS, BLOCK_STEPS = 20, 32
COMMAND = (
    f"-P -m exarl train --agent DQN-v0 --env CartPole-v1 --block_steps {BLOCK_STEPS} --envs_per_actor 1"
    f" --learning_starts 1 --total_steps {4 * BLOCKS * BLOCK_STEPS} --checkpoint_interval 1000000"
)
WORKFLOWS = {
    "serial": "--workflow sync",
    "sync": "--workflow sync --procs 2",
    "async": "--workflow async --procs 2",
    "rma": "--workflow rma --procs 2",
    "seed": "--workflow seed --procs 2",
    "elastic": "--workflow elastic --n_actors 1",
    "fused": "--workflow fused",
}
STEP, TRAIN, RESET, FETCH = "step", "train", "reset", "fetch"
FUSED_MARKS = (RESET, FETCH)
ENDED_BY = {"serial": {STEP}, "fused": {FETCH}}
"""By which marks processes end; in other workflows ``STEP`` on actors and ``TRAIN`` on learners."""
MESSAGE = 1000
"""Bytes: as a message, a block has 1,100 here, the weights 35,000, and a record of metrics 700."""


@dataclass(frozen=True)
class Passage:
    """The files, by their paths below ``exarl``, that something passes."""

    entered: frozenset[str] = frozenset()
    handling: frozenset[str] = frozenset()

    def __or__(self, other: Passage) -> Passage:
        return Passage(self.entered | other.entered, self.handling | other.handling)


def holds_data(value: object, depth: int = 2) -> bool:
    """Whether a value is data, or holds data at most ``depth`` levels below it.

    Data is an array with at least one axis (of NumPy or JAX, also while it is traced) or at least
    ``MESSAGE`` bytes. Dictionaries, lists, tuples and dataclasses hold it: ``Block``, ``TrainState``.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value) >= MESSAGE
    if hasattr(value, "dtype") and isinstance(ndim := getattr(value, "ndim", None), int):
        return ndim > 0
    return depth > 0 and any(holds_data(item, depth - 1) for item in _items(value))


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, part.name, None) for part in dataclasses.fields(value)]
    return ()


def arguments(frame: FrameType) -> list[object]:
    """What a function was called with, ``self`` and ``cls`` aside."""
    code, given = frame.f_code, frame.f_locals
    starred = bool(code.co_flags & 4) + bool(code.co_flags & 8)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred]
    return [given.get(name) for name in names if name not in ("self", "cls")]


def mark_of(code: CodeType) -> str:
    """Which mark a call of this function is; the empty text if none."""
    file, name = code.co_filename, code.co_qualname
    if name == "CartPoleEnv.step":
        return STEP
    if name == "CartPoleFunctional.initial":
        return RESET
    if name == "device_get" and "/jax/" in file:
        return FETCH
    method = name.endswith(".train") and "<locals>" not in name
    return TRAIN if method and "/exarl/agents/" in file else ""


@dataclass
class Window:
    """The files that are entered while it is open."""

    entered: set[str] = field(default_factory=set)
    handling: set[str] = field(default_factory=set)

    def note(self, name: str, frame: FrameType, event: str, result: object) -> None:
        self.entered.add(name)
        if name not in self.handling:
            values = arguments(frame) if event == "call" else [result]
            if any(map(holds_data, values)):
                self.handling.add(name)


class Recorder:
    """The profile function of all threads of a process."""

    def __init__(self, source: str, notes: str, fused: bool) -> None:
        """``source`` is the folder ``exarl``; notes are written into the folder ``notes``."""
        self._source, self._notes, self._fused = f"{source}/", Path(notes), fused
        self._known: dict[CodeType, tuple[str, str]] = {}
        self._counts: Counter[str] = Counter()
        self._loop, self._update = Window(), Window()
        self._first_train: FrameType | None = None  # while it runs
        self._over = False

    def start(self) -> None:
        """Follow this thread and all later ones. ``threading`` does not know those of Ray: they are
        found at their first audit event, for example when they open a file."""
        threading.setprofile(self.follow)
        sys.setprofile(self.follow)
        sys.addaudithook(self._follow_thread)

    def _follow_thread(self, event: str, _: object) -> None:
        if event != "sys.setprofile" and not self._over and sys.getprofile() is None:
            sys.setprofile(self.follow)

    def follow(self, frame: FrameType, event: str, result: object) -> None:
        """Note a call or a return between begin and end."""
        if self._over:
            sys.setprofile(None)
            return
        if event not in ("call", "return"):
            return
        name, mark = self._known.get(frame.f_code) or self._know(frame.f_code)
        if mark and event == "call":
            self._pass(mark, frame)
        if not name or not self._counts:
            return
        self._loop.note(name, frame, event, result)
        if self._first_train is not None:
            self._update.note(name, frame, event, result)
            if event == "return" and frame is self._first_train:
                self._first_train = None

    def _know(self, code: CodeType) -> tuple[str, str]:
        """The file of a function of EXARL and its mark; bodies of modules and classes are left out."""
        inside = code.co_flags & 1 and code.co_filename.startswith(self._source)
        name = code.co_filename.removeprefix(self._source) if inside else ""
        mark = mark_of(code)
        self._known[code] = name, mark if self._fused == (mark in FUSED_MARKS) else ""
        return self._known[code]

    def _pass(self, mark: str, frame: FrameType) -> None:
        self._counts[mark] += 1
        if mark == TRAIN and self._counts[mark] == 1:
            self._first_train = frame
        blocks = BLOCKS * BLOCK_STEPS if mark == STEP else BLOCKS
        if mark != RESET and self._counts[mark] > blocks and not self._over:
            self._over = True
            files = [[[*w.entered], [*w.handling]] for w in (self._loop, self._update)]
            path = self._notes / f"{os.getpid()}.json"
            path.write_text(json.dumps([mark, *files]), encoding="utf-8")


def measure(workflow: str, source: Path) -> tuple[Passage, Passage]:
    """What a block and the first update pass. SystemExit if the run fails or ends too early."""
    with tempfile.TemporaryDirectory(prefix="block-path-") as name:
        folder = Path(name)
        hook = (
            "from benchmarks.block_path import Recorder\n"
            f"Recorder({str(source / 'exarl')!r}, {name!r}, {workflow == 'fused'}).start()\n"
        )
        (folder / "sitecustomize.py").write_text(hook, encoding="utf-8")
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([name, str(ROOT), str(source)])}
        command = [sys.executable, *COMMAND.split(), *WORKFLOWS[workflow].split()]
        done = subprocess.run(
            command,
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{workflow}: exit code {done.returncode}\n{done.stderr[-3000:]}")
        found = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    if {mark for mark, *_ in found} != ENDED_BY.get(workflow, {STEP, TRAIN}):
        raise SystemExit(f"{workflow}: a process did not come to the end of {BLOCKS} blocks")
    loop = update = Passage()
    for _, whole, part in found:
        loop |= Passage(*map(frozenset, whole))
        update |= Passage(*map(frozenset, part))
    return loop, update


def report(name: str, passage: Passage, source: Path, *, listed: bool) -> None:
    """Print a row of the table, and below it the files if they are to be ``listed``."""
    lines = {
        file: len((source / "exarl" / file).read_text(encoding="utf-8").splitlines())
        for file in sorted(passage.entered)
    }
    both = (passage.entered, passage.handling)
    cells = [f"{len(files):>10} {sum(lines[f] for f in files):>7,}" for files in both]
    print(f"{name:<14}", *cells, flush=True)
    for file, count in lines.items() if listed else ():
        print(f"    {'*' if file in passage.handling else ' '} {file}: {count}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.block_path",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workflow", nargs="+", choices=WORKFLOWS, default=list(WORKFLOWS))
    parser.add_argument("--list", action="store_true", help="name the files")
    parser.add_argument(
        "--source", type=Path, default=ROOT / "src", help="the folder that contains exarl"
    )
    options = parser.parse_args()
    source = options.source.resolve()
    if not (source / "exarl" / "__init__.py").is_file():
        parser.error(f"there is no exarl in {source}")
    print(f"{'':<14} {'entered':>10} {'lines':>7} {'handle it':>10} {'lines':>7}")
    for workflow in options.workflow:
        loop, update = measure(workflow, source)
        report(workflow, loop, source, listed=options.list)
        if workflow == "serial":
            report("DQN's update", update, source, listed=options.list)


if __name__ == "__main__":
    main()
