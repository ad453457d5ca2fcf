"""The identity of an environment: number, rank, seed, folder, port and devices."""

from __future__ import annotations

import os
import shutil
import socket
import weakref
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exarl.learning.exploration import IDENTITY
from exarl.records.scratch import scratch_folder

_PORTS = range(20_000, 32_768)  # below those that systems hand out themselves
_DEVICE_LISTS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


@dataclass(frozen=True)
class EnvContext:
    """What an environment receives if its constructor asks for ``context``.

    ``index`` counts the environments of a run from 0, over all ranks; the one that evaluations play
    in comes after the last. ``seed`` belongs to this environment of this run alone (each episode's own
    comes with ``reset``). ``work_dir`` exists and is its own. ``port`` was free a moment ago and
    is given to no other environment of the run on this machine. ``devices`` are the
    accelerators it may use, by the names that CUDA_VISIBLE_DEVICES and its like have for them; where
    there are fewer than environments, they share.
    """

    index: int
    rank: int
    seed: int
    work_dir: Path
    port: int
    devices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {**vars(self), "work_dir": str(self.work_dir), "devices": list(self.devices)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EnvContext:
        devices = tuple(data["devices"])
        return cls(**{**data, "work_dir": Path(data["work_dir"]), "devices": devices})


def make_context(index: int, rank: int, run_seed: int, work_dir: Path) -> EnvContext:
    """The context of environment ``index``; its folder is made if it does not exist."""
    work_dir = work_dir.absolute()
    work_dir.mkdir(parents=True, exist_ok=True)
    sequence = np.random.SeedSequence(run_seed, spawn_key=(IDENTITY, index))
    listed = visible_devices()
    return EnvContext(
        index,
        rank,
        int(sequence.generate_state(1)[0] >> 1),
        work_dir,
        free_port(zlib.crc32(bytes(work_dir.parent)) + index),
        (listed[index % len(listed)],) if listed else (),
    )


class TemporaryContext(EnvContext):
    """The context of an environment outside a run, in a temporary folder."""

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.work_dir.parent, ignore_errors=True)

    def remove_with(self, owner: object) -> None:
        """Remove it when ``owner`` goes, at the latest with the program."""
        weakref.finalize(owner, self.remove)


def temporary_context() -> TemporaryContext:
    """A new temporary context; the caller has to remove it."""
    folder = scratch_folder("exarl-env-") / "0000"
    return TemporaryContext(**vars(make_context(0, 0, 0, folder)))


def free_port(start: int) -> int:
    """A TCP port of this machine on which nothing listens, counting from ``start``.

    Counting up from the environment's number gives each its own, where asking the system for any free
    port would give two environments the same one now and then.
    """
    for attempt in range(len(_PORTS)):
        port = _PORTS[(start + 997 * attempt) % len(_PORTS)]
        with socket.socket() as trial:
            try:
                trial.bind(("", port))
            except OSError:
                continue
        return port
    raise OSError("no TCP port is free")


def visible_devices() -> list[str]:
    """The accelerators this process may use, by name."""
    for variable in _DEVICE_LISTS:
        if (listed := os.environ.get(variable)) is not None:
            return [name.strip() for name in listed.split(",") if name.strip() not in ("", "-1")]
    return sorted(p.name.removeprefix("nvidia") for p in Path("/dev").glob("nvidia[0-9]*"))
