"""Trainings inside one MPI job: its ranks in disjoint groups, a training at a time in each.

Rank 0 manages the study. The first rank of each group starts its trainings, as a nested job on the
group's hosts if it has several ranks; the others, and who has nothing to do, wait without using a core.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.comm.messages import pack_json, unpack_json
from exarl.comm.mpi import Channel, find_mpiexec, library_version
from exarl.comm.wait import wait_for
from exarl.errors import ConfigError
from exarl.records.signals import StopSignals
from exarl.sweep.executors import Handle, Job
from exarl.sweep.executors.local import Child, thread_limits

HELLO, PLACES, DO, SAY = 41, 42, 43, 44


@dataclass(frozen=True)
class Place:
    """Where a rank is: its host and the cores it may use."""

    host: str
    cores: tuple[int, ...]


def check_groups(world: int, procs: int) -> int:
    """How many groups of ``procs`` ranks a job has; ConfigError when it does not come out even."""
    if world % procs:
        fitting = [n for n in (world // procs * procs, (world // procs + 1) * procs) if n]
        raise ConfigError(
            f"{world} ranks make no groups of {procs}; {' or '.join(map(str, fitting))} would"
        )
    return world // procs


def command_for(
    group: Sequence[Place], words: Sequence[str], environ: Mapping[str, str], library: str
) -> list[str]:
    """The command that runs ``exarl WORDS`` on the ranks of a group."""
    plain = [sys.executable, "-P", "-m", "exarl", *words]
    if len(group) == 1:
        return plain
    counts: dict[str, int] = {}
    for place in group:
        counts[place.host] = counts.get(place.host, 0) + 1
    if "SLURM_JOB_ID" in environ and shutil.which("srun"):
        hosts = ["-w", ",".join(counts), "-N", str(len(counts))]
        return ["srun", "--overlap", "--exact", "-n", str(len(group)), *hosts, *plain]
    hosts_ranks = ",".join(f"{host}:{count}" for host, count in counts.items())
    mpiexec = [find_mpiexec(), "-n", str(len(group))]
    if library.startswith("Open MPI"):
        return [*mpiexec, "--host", hosts_ranks, *plain]
    # One host needs no shell on others, and no list of the batch system's.
    alone = ["-launcher", "fork"] if len(counts) == 1 else []
    return [*mpiexec, *alone, "-hosts", hosts_ranks, *plain]


class Groups:
    """The manager's side, on rank 0: a slot for each group, the first of which it leads itself."""

    def __init__(self, comm: Any, procs: int) -> None:
        self.slots = check_groups(comm.size, procs)
        self._channel = Channel(comm)
        places = _meet(self._channel)
        self._groups = [places[i * procs : (i + 1) * procs] for i in range(self.slots)]
        self._leaders = [i * procs for i in range(self.slots)]
        self._library = library_version()
        self._busy: dict[int, Handle] = {}
        self._ended: dict[int, int] = {}
        self._numbers = 0
        _take_cores(self._groups[0])

    def start(self, job: Job) -> Handle:
        slot = next(i for i in range(self.slots) if i not in self._busy or self._free(i))
        command = command_for(self._groups[slot], job.words, os.environ, self._library)
        handle: Handle
        if slot == 0:
            handle = Child(command, job, thread_limits(_threads(self._groups[0])))
        else:
            self._numbers += 1
            handle = _Far(self, self._leaders[slot], self._numbers)
            places = [str(job.output.absolute()), str(job.folder)]
            self.tell(self._leaders[slot], "start", self._numbers, command, *places)
        self._busy[slot] = handle
        return handle

    def close(self) -> None:
        for handle in self._busy.values():
            if handle.poll() is None:
                handle.kill()
        self._channel.send(pack_json(["bye"]), range(1, self._channel.size), DO)
        self._channel.close()

    def tell(self, leader: int, *message: Any) -> None:
        self._channel.send(pack_json(message), leader, DO)

    def code(self, number: int) -> int | None:
        """The exit code of a training of another group, once its leader has said it."""
        while (found := self._channel.poll(tag=SAY)) is not None:
            ended, code = unpack_json(found[1])
            self._ended[ended] = code
        return self._ended.get(number)

    def _free(self, slot: int) -> bool:
        return self._busy[slot].poll() is not None


class _Far:
    """A training that the leader of another group has started."""

    def __init__(self, groups: Groups, leader: int, number: int) -> None:
        self._groups, self._leader, self._number = groups, leader, number

    def poll(self) -> int | None:
        return self._groups.code(self._number)

    def terminate(self) -> None:
        self._groups.tell(self._leader, "terminate", self._number)

    def kill(self) -> None:
        self._groups.tell(self._leader, "kill", self._number)


def serve(comm: Any, procs: int) -> None:
    """What every rank but 0 does until the manager says goodbye."""
    check_groups(comm.size, procs)
    channel = Channel(comm)
    group = _meet(channel)[channel.rank // procs * procs :][:procs]
    if channel.rank % procs == 0:
        _take_cores(group)
    running: dict[int, Child] = {}

    def turn() -> bool | None:
        for number, child in list(running.items()):
            code = child.poll()
            if code is not None:
                del running[number]
                channel.send(pack_json([number, code]), 0, SAY)
        found = channel.poll(0, DO)
        if found is None:
            return None
        what, *rest = unpack_json(found[1])
        if what == "start":
            number, command, output, folder = rest
            job = Job(command, Path(output), Path(folder))
            running[number] = Child(command, job, thread_limits(_threads(group)))
        elif what in ("terminate", "kill") and rest[0] in running:
            getattr(running[rest[0]], what)()
        return True if what == "bye" else None

    with StopSignals():  # the manager hears of it too, and decides
        try:
            wait_for(turn)
        finally:
            for child in running.values():
                child.kill()
    channel.close()


def _meet(channel: Channel) -> list[Place]:
    """Where all ranks are, in order."""
    mine = [socket.gethostname(), sorted(os.sched_getaffinity(0))]
    found: list[Any] = [mine]
    if channel.rank:
        channel.send(pack_json(mine), 0, HELLO)
    else:
        found += [unpack_json(channel.receive(rank, HELLO)[1]) for rank in range(1, channel.size)]
    return [Place(host, tuple(cores)) for host, cores in channel.share(found, PLACES)]


def _cores(group: Sequence[Place]) -> set[int]:
    """The cores that the ranks of a group have on this host."""
    here = socket.gethostname()
    return {core for place in group if place.host == here for core in place.cores}


def _take_cores(group: Sequence[Place]) -> None:
    """Let what this rank starts use the cores of its whole group; the ranks themselves only wait."""
    os.sched_setaffinity(0, _cores(group))


def _threads(group: Sequence[Place]) -> int:
    return max(1, len(_cores(group)) // len(group))
