"""Trainings inside one MPI job: its ranks form disjoint groups, with one training at a time in each.

Rank 0 manages the study. The first rank of each group starts its trainings, as a nested job on the
group's hosts if it has several ranks. The other ranks, and idle ones, wait without using a core.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exarl.comm.channel import Channel, find_mpiexec, library_version
from exarl.comm.messages import Tag, decode, encode
from exarl.comm.waiting import wait_for
from exarl.errors import ConfigError
from exarl.records.signals import StopSignals
from exarl.sweep.executors import Handle, Job, exarl_command
from exarl.sweep.executors.local import TrainingProcess, thread_limits

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Place:
    """The host of a rank and the cores it may use."""

    host: str
    cores: tuple[int, ...]


def check_groups(world: int, procs: int) -> int:
    """The number of groups of ``procs`` ranks in a job; ConfigError when ranks are left over."""
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
    plain = exarl_command(words)
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
    # On one host mpiexec needs neither a remote shell nor the batch system's list of hosts.
    alone = ["-launcher", "fork"] if len(counts) == 1 else []
    return [*mpiexec, *alone, "-hosts", hosts_ranks, *plain]


class Groups:
    """The manager's side, on rank 0: one slot per group; rank 0 leads the first group itself."""

    def __init__(self, comm: MPI.Intracomm, procs: int) -> None:
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
            handle = TrainingProcess(command, job, thread_limits(_threads(self._groups[0])))
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
        self._channel.send(encode(["bye"]), range(1, self._channel.size), Tag.SWEEP_ORDER)
        self._channel.close()

    def tell(self, leader: int, *message: object) -> None:
        self._channel.send(encode(message), leader, Tag.SWEEP_ORDER)

    def code(self, number: int) -> int | None:
        """The exit code of a training of another group, once its leader has reported it; else None."""
        while (found := self._channel.poll(tag=Tag.SWEEP_ENDED)) is not None:
            ended, code = decode(found[1], tuple[int, int])[0]
            self._ended[ended] = code
        return self._ended.get(number)

    def _free(self, slot: int) -> bool:
        return self._busy[slot].poll() is not None


class _Far:
    """A training that the leader of another group runs."""

    def __init__(self, groups: Groups, leader: int, number: int) -> None:
        self._groups, self._leader, self._number = groups, leader, number

    def poll(self) -> int | None:
        return self._groups.code(self._number)

    def terminate(self) -> None:
        self._groups.tell(self._leader, "terminate", self._number)

    def kill(self) -> None:
        self._groups.tell(self._leader, "kill", self._number)


def serve(comm: MPI.Intracomm, procs: int) -> None:
    """Serve the manager on a rank other than 0, until it ends the job."""
    check_groups(comm.size, procs)
    channel = Channel(comm)
    group = _meet(channel)[channel.rank // procs * procs :][:procs]
    if channel.rank % procs == 0:
        _take_cores(group)
    running: dict[int, TrainingProcess] = {}

    def turn() -> bool | None:
        for number, child in list(running.items()):
            code = child.poll()
            if code is not None:
                del running[number]
                channel.send(encode((number, code)), 0, Tag.SWEEP_ENDED)
        found = channel.poll(0, Tag.SWEEP_ORDER)
        if found is None:
            return None
        what, *rest = decode(found[1], list)[0]
        if what == "start":
            number, command, output, folder = rest
            job = Job(command, Path(output), Path(folder))
            running[number] = TrainingProcess(command, job, thread_limits(_threads(group)))
        elif what in ("terminate", "kill") and rest[0] in running:
            getattr(running[rest[0]], what)()
        return True if what == "bye" else None

    with StopSignals():  # the manager receives it too, and decides
        try:
            wait_for(turn)
        finally:
            for child in running.values():
                child.kill()
    channel.close()


def _meet(channel: Channel) -> list[Place]:
    """Hosts and cores of all ranks, in order."""
    mine = [socket.gethostname(), sorted(os.sched_getaffinity(0))]
    found: list[list[Any]] = [mine]
    if channel.rank:
        channel.send(encode(mine), 0, Tag.SWEEP_HELLO)
    else:
        others = [channel.receive(rank, Tag.SWEEP_HELLO)[1] for rank in range(1, channel.size)]
        found += [decode(message, list)[0] for message in others]
    return [Place(host, tuple(cores)) for host, cores in channel.share(found, Tag.SWEEP_PLACES)]


def _cores(group: Sequence[Place]) -> set[int]:
    """The cores that the ranks of a group have on this host."""
    here = socket.gethostname()
    return {core for place in group if place.host == here for core in place.cores}


def _take_cores(group: Sequence[Place]) -> None:
    """Let this rank's children use the cores of the whole group; the other ranks only wait."""
    os.sched_setaffinity(0, _cores(group))


def _threads(group: Sequence[Place]) -> int:
    return max(1, len(_cores(group)) // len(group))
