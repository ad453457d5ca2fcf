"""Checkpoints: arrays as safetensors, numbers as JSON, written aside and renamed. No pickle."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exarl.errors import CheckpointError
from exarl.records.directory import RunDirectory, read_regular, reason
from exarl.types import Arrays

log = logging.getLogger(__name__)

_STATE = "state.json"
_NAME = re.compile("[0-9]+")
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Checkpoint:
    """All that training needs to continue: groups of named arrays, and plain numbers."""

    arrays: dict[str, Arrays]  # file stem -> arrays, e.g. "agent", "envs"
    numbers: dict[str, Any]


def save_checkpoint(folder: Path, step: int, checkpoint: Checkpoint, keep: int) -> Path:
    """Write ``folder/<step>`` atomically and remove all but the newest ``keep``."""
    from safetensors.numpy import save

    folder.mkdir(exist_ok=True)  # not its parents: a run that was deleted is not made again
    target = folder / f"{step:012d}"
    for left_over in folder.glob(".*.tmp"):  # of a writer that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    aside = folder / f".{target.name}.tmp"
    aside.mkdir()
    sums = {}
    for stem, arrays in checkpoint.arrays.items():
        payload = save({name: np.asarray(a, order="C") for name, a in arrays.items()})
        sums[stem] = [len(payload), zlib.crc32(payload)]
        _write(aside / f"{stem}.safetensors", payload)
    _write(aside / _STATE, json.dumps({"files": sums, **checkpoint.numbers}, indent=1).encode())
    if target.exists():  # the same step again, after a resume: the new one takes its place
        os.replace(target, folder / f".{target.name}.old.tmp")
    os.replace(aside, target)
    _sync_folder(folder)
    for old in list_checkpoints(folder)[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in ``folder``, newest first; nothing half-written is among them."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name), reverse=True)


def load_checkpoint(path: Path) -> Checkpoint:
    """One checkpoint, every byte of it checked; CheckpointError when anything is amiss."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        numbers = json.loads(read_regular(path / _STATE).decode("utf-8"))
        arrays = {}
        for stem, (size, checksum) in numbers.pop("files").items():
            payload = read_regular(path / f"{stem}.safetensors")
            if len(payload) != size or zlib.crc32(payload) != checksum:
                raise CheckpointError(f"checkpoint {path} is damaged: {stem}.safetensors")
            arrays[stem] = load(payload)
    except _DAMAGE as error:
        raise CheckpointError(f"checkpoint {path} is damaged: {reason(error)}") from error
    except SafetensorError as error:
        raise CheckpointError(f"checkpoint {path} is damaged: {error}") from error
    return Checkpoint(arrays, numbers)


def not_finite(checkpoint: Checkpoint) -> str | None:
    """The first of the agents' weights, and of what they learn with, that is not finite; weights of
    another type than floating point count as such."""
    for stem, arrays in checkpoint.arrays.items():
        for name, array in arrays.items():
            kept = stem.startswith("agent") and name.startswith(("weights", "learned/"))
            if name == "weights" and kept and array.dtype.kind != "f":
                return name
            if kept and array.dtype.kind == "f" and not np.isfinite(array).all():
                return name
    return None


def weights_of(checkpoint: Checkpoint) -> np.ndarray:
    """The weights to act with; CheckpointError where there are none, or none that are finite."""
    weights = checkpoint.arrays.get("agent", {}).get("weights")
    if weights is None:
        raise CheckpointError("the checkpoint holds no weights")
    if not_finite(Checkpoint({"agent": {"weights": weights}}, {})):
        raise CheckpointError("the weights of the checkpoint are not finite numbers")
    return weights


@contextlib.contextmanager
def fitting(run: RunDirectory | None) -> Iterator[None]:
    """Turn a failure to use what a checkpoint holds into one line; the log has the traceback."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        told = f"{type(error).__name__}: {error}"
        where = f"{run.checkpoints}: " if run else ""
        raise CheckpointError(f"{where}the checkpoint does not fit this run: {told}") from error


def find_newest(folder: Path) -> Path | None:
    """The newest checkpoint that is whole and finite; others are named and passed over."""
    for path in list_checkpoints(folder):
        try:
            name = not_finite(load_checkpoint(path))
            if name is not None:
                raise CheckpointError(f"checkpoint {path} has diverged: {name} is not finite")
        except CheckpointError as error:
            log.warning("%s; trying the one before", error)
        else:
            return path
    return None


def set_aside_newer(folder: Path, than: Path | None) -> None:
    """Rename the checkpoints newer than the one a run continues from: they are damaged, and must
    not push out the ones it will write. One of them is kept, the newest."""
    for path in list_checkpoints(folder):
        if than is None or int(path.name) > int(than.name):
            shutil.rmtree(aside := path.with_name(f"{path.name}.damaged"), ignore_errors=True)
            os.replace(path, aside)
    for old in sorted(folder.glob("[0-9]*.damaged"))[:-1]:  # of 12 digits each, so in their order
        shutil.rmtree(old, ignore_errors=True)


def load_newest(folder: Path) -> Checkpoint | None:
    """What ``find_newest`` finds."""
    path = find_newest(folder)
    return load_checkpoint(path) if path else None


def _write(path: Path, payload: bytes) -> None:
    with path.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
