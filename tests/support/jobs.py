"""Whole jobs as a user starts them, in processes of their own, and what they leave behind."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exarl.comm.launcher import find_launcher
from exarl.records.checkpoint import Checkpoint, load_newest
from exarl.records.metrics import read_rows

PLUGIN = Path(__file__).parents[1] / "faults" / "plugin"
PYTHON = sys.executable
EXARL = (PYTHON, "-m", "exarl")
LAUNCHER = find_launcher()
MPIEXEC = LAUNCHER.path
PATIENCE = 120.0
"""Seconds any job may take; a loaded machine is slow, a deadlock is for ever."""

SMALL = ("--total_steps", "1500", "--learning_starts", "200", "--hidden", "[16]", "--seed", "5")
"""A DQN run of seconds, most of them spent starting JAX."""

DEEP = (*SMALL, "--agent", "Deep-v0", "--env", "Replayed-v0")
"""The same in an environment that obeys SUBJECT."""

LIGHT = ("--agent", "Linear-v0", "--total_steps", "1500", "--seed", "5")
"""A run without JAX, for tests of what is not the agent's doing."""


@dataclass(frozen=True)
class Ended:
    """A job that is over: its exit code, what it wrote, and when its last process was gone."""

    code: int
    out: str
    err: str
    gone_at: float

    def ok(self) -> Ended:
        """This job, if it went well."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


class Job:
    """A command and every process that comes of it, known by a mark in their environment."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        subject: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._mark = f"EXARL_TEST_JOB={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        path = os.pathsep.join(filter(None, [str(PLUGIN), os.environ.get("PYTHONPATH", "")]))
        variables = {**os.environ, "PYTHONPATH": path, "SDL_VIDEODRIVER": "dummy", name: value}
        variables["SUBJECT"] = json.dumps(dict(subject or {}))
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            list(map(str, command)),
            cwd=cwd,
            env=variables | dict(environ or {}),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    def pids(self) -> list[int]:
        """Every living process of this job, also those that lost their parent."""
        return [pid for pid in all_pids() if self._mark in environment_of(pid) and not dead(pid)]

    def rank_pid(self, rank: int) -> int:
        """The process that is MPI rank ``rank``; waits until it has started."""
        wanted = {f"PMI_RANK={rank}", f"OMPI_COMM_WORLD_RANK={rank}"}

        def find() -> int | None:
            return next((p for p in self.pids() if wanted.intersection(environment_of(p))), None)

        return int(wait_until(find))

    def send(self, signum: int) -> None:
        """Signal the process that the user started."""
        self.process.send_signal(signum)

    def kill(self) -> None:
        """SIGKILL to all processes, as when the power fails."""
        while pids := self.pids():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.poll()
            time.sleep(0.01)

    def wait(self, patience: float = PATIENCE) -> Ended:
        """Wait for the command, then for whatever it left behind; nothing survives this call."""
        try:
            code = self.process.wait(patience)
            deadline = time.monotonic() + 30
            while self.pids() and time.monotonic() < deadline:
                time.sleep(0.02)
            gone_at, left = time.time(), self.pids()
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise AssertionError(f"no end after {patience} s:\n{self._read(self._err)}") from error
        finally:
            self.kill()
            self.process.wait()
        assert not left, f"{len(left)} processes were left\n{self._read(self._err)}"
        return Ended(code, self._read(self._out), self._read(self._err), gone_at)

    @staticmethod
    def _read(file: Any) -> str:
        file.seek(0)
        return str(file.read().decode(errors="replace"))


def sum_again(checkpoint: Path) -> None:
    """Let ``SHA256SUMS`` of a checkpoint fit its files as they are now."""
    names = [line[66:] for line in (checkpoint / "SHA256SUMS").read_text().splitlines()]
    digests = {n: hashlib.sha256((checkpoint / n).read_bytes()).hexdigest() for n in names}
    lines = [f"{digest}  {name}\n" for name, digest in digests.items()]
    (checkpoint / "SHA256SUMS").write_text("".join(lines))


def run(command: Sequence[Any], **options: Any) -> Ended:
    """Start a job and wait for its end."""
    return Job([str(word) for word in command], **options).wait()


def run_all(commands: Mapping[str, Sequence[Any]], **options: Any) -> dict[str, Ended]:
    """Several jobs, two at a time: most of a short run is one process starting JAX."""
    with ThreadPoolExecutor(2) as pool:
        ended = pool.map(lambda command: run(command, **options), commands.values())
        return dict(zip(commands, ended, strict=True))


def train(run_dir: Path, *words: Any) -> list[str]:
    """The command that trains into ``run_dir``."""
    return [*EXARL, "train", "--run_dir", str(run_dir), *map(str, words)]


def resume(run_dir: Path, *words: Any) -> list[str]:
    """The command that continues ``run_dir``."""
    return [*EXARL, "resume", str(run_dir), *map(str, words)]


def under_mpi(ranks: int, command: Sequence[Any]) -> list[str]:
    """The command under mpiexec."""
    return LAUNCHER.command(ranks, list(map(str, command)))


def paused(command: Sequence[str], folder: Path, at: int, rank: int = 0, **order: Any) -> Job:
    """A job that stands still at step ``at`` of an environment of ``rank``, until ``go_on``."""
    folder.mkdir(parents=True, exist_ok=True)
    order = {"folder": str(folder), "fault": "pause", "at": at, "rank": rank, **order}
    job = Job(command, subject=order)
    try:
        wait_until(lambda: (folder / "struck").exists() or job.process.poll() is not None)
        assert job.process.poll() is None, job.wait().err
    except BaseException:
        job.kill()
        raise
    return job


def go_on(folder: Path) -> None:
    (folder / "go").touch()


def reference(base: Path, name: str, *words: Any) -> Path:
    """A run that ends by itself, made once below ``base`` however many tests compare with it."""
    path = base / "references" / name
    if not (path / "summary.json").exists():
        run(train(path, *words)).ok()
    return path


# -- what a run left ---------------------------------------------------------------------------------


def is_timing(column: str) -> bool:
    """Whether a column measures the machine rather than the learning."""
    measured = ("time_total_s", "steps_per_s", "updates_per_s")
    return column in measured or column.startswith(("time/", "core_hours_"))


def newest(run_dir: Path) -> Checkpoint:
    """The newest checkpoint."""
    found = load_newest(run_dir / "checkpoints")
    assert found is not None, f"no usable checkpoint in {run_dir}"
    return found


def learned_rows(run_dir: Path) -> list[dict[str, Any]]:
    """The rows of result.jsonl without what measures the machine."""
    rows = read_rows(run_dir / "result.jsonl")
    return [{k: v for k, v in row.items() if not is_timing(k)} for row in rows]


def csv_rows(run_dir: Path) -> list[dict[str, str]]:
    """The rows of progress.csv without what measures the machine."""
    with (run_dir / "progress.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not is_timing(k)} for row in rows]


def arrays_of(run_dir: Path, stem: str) -> dict[str, str]:
    """Every array of one file of the newest checkpoint, as a digest of its bytes."""
    arrays = newest(run_dir).arrays[stem]
    return {name: _digest(array) for name, array in sorted(arrays.items())}


def numbers_of(run_dir: Path) -> dict[str, Any]:
    """The numbers of the newest checkpoint without measured times and the run's names."""
    numbers = {k: v for k, v in newest(run_dir).numbers.items() if k != "made_for"}
    measured = ("seconds", "simulated_core_s", "learner_core_s")
    counters = {k: v for k, v in numbers["counters"].items() if k not in measured}
    return {**numbers, "counters": counters}


def learning_of(run_dir: Path) -> dict[str, Any]:
    """What was learned and how: metrics, weights, optimiser, replay, random states."""
    return {
        "rows": learned_rows(run_dir),
        "csv": csv_rows(run_dir),
        "agent": arrays_of(run_dir, "agent"),
        "numbers": numbers_of(run_dir),
    }


def everything_of(run_dir: Path) -> dict[str, Any]:
    """All of a run that equal runs have equal, the running episodes included."""
    return {**learning_of(run_dir), "envs": arrays_of(run_dir, "envs")}


def assert_same(got: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Equal to the bit; the first difference is named."""
    for part, value in expected.items():
        if got[part] != value:
            raise AssertionError(f"{part} differ: {_first_difference(got[part], value)}")


def summary_of(run_dir: Path) -> dict[str, Any]:
    return dict(json.loads((run_dir / "summary.json").read_text(encoding="utf-8")))


def _digest(array: np.ndarray) -> str:
    head = f"{array.dtype}{array.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()


def _first_difference(got: Any, expected: Any) -> str:
    if isinstance(expected, list) and isinstance(got, list):
        for i, (one, other) in enumerate(zip(got, expected, strict=False)):
            if one != other:
                return f"row {i}: {_first_difference(one, other)}"
        return f"{len(got)} rows, expected {len(expected)}"
    if isinstance(expected, dict) and isinstance(got, dict):
        names = [n for n in {**expected, **got} if got.get(n) != expected.get(n)]
        return ", ".join(f"{n}: {got.get(n)} != {expected.get(n)}" for n in names[:3])
    return f"{got} != {expected}"


def fill(disk: Path, left: int = 0) -> Path:
    """Use up all but ``left`` pages."""
    junk = disk / "junk"
    with junk.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(max(0, file.tell() - 4096 * left))
    return junk


# -- processes ---------------------------------------------------------------------------------------


def wait_until(poll: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Poll until something true comes back."""
    deadline = time.monotonic() + patience
    while not (found := poll()):
        assert time.monotonic() < deadline, f"nothing happened within {patience} s"
        time.sleep(0.01)
    return found


def all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208


def environment_of(pid: int) -> list[str]:
    """The environment a process was started with; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def dead(pid: int) -> bool:
    """Whether a process is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def segments_of(job: Job) -> list[Path]:
    """The shared memory that the ranks of a job have open, by the names it has or had."""
    maps = [f"/proc/{pid}/maps" for pid in job.pids()]
    fields = [line.split(maxsplit=5) for path in maps for line in _lines(path)]
    names = {field[5].removesuffix(" (deleted)") for field in fields if len(field) == 6}
    return [Path(name) for name in sorted(names) if name.startswith("/dev/shm/")]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
