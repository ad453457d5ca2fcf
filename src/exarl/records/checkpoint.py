"""Checkpoints: the one place that knows how they look on disk.

A checkpoint is a folder. Arrays are in ``GROUP.safetensors``, everything else is in ``state.json``,
which begins with the number of the format. ``SHA256SUMS`` lists the checksums of all these files in the
form that ``sha256sum -c`` reads. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exarl.config import LearnerConfig
from exarl.errors import CheckpointError
from exarl.records.directory import RunDirectory, read_regular, reason
from exarl.records.replacing import remove, replacing, sync_to_disk
from exarl.types import Arrays, ArraySpec, EnvSpec
from exarl.version import __version__

log = logging.getLogger(__name__)

FORMAT = 1
"""The format that is written. 0 is what EXARL 0.1.0 wrote before formats had numbers."""

_STATE, _SUMS, _SUFFIX = "state.json", "SHA256SUMS", ".safetensors"
_DIGITS = 2 * hashlib.sha256().digest_size
_NAME = re.compile("[0-9]+")
_MISFIT = (LookupError, TypeError, ValueError, AttributeError)
_DAMAGE = (*_MISFIT, OSError, RecursionError, MemoryError)
_BEFORE = {"layer_norm": "false"}  # of checkpoints that do not name it, which are older than it
_LEARNED = ("weights", "params/", "target/", "optimizer/", "learned/")  # "learned/" in format 0


class NewerFormat(CheckpointError):
    """A checkpoint that a later version of EXARL wrote; it is not passed over for an older one."""


@dataclass(frozen=True)
class Checkpoint:
    """All that training needs to continue: groups of named arrays, and plain numbers."""

    arrays: dict[str, Arrays]  # by group, which is the stem of a file: "agent", "envs"
    numbers: dict[str, Any]
    format: int = FORMAT  # of the files it was loaded from


def save_checkpoint(folder: Path, step: int, checkpoint: Checkpoint, keep: int) -> Path:
    """Write ``folder/<step>`` atomically and remove all but the newest ``keep``."""
    from safetensors.numpy import save

    folder.mkdir(exist_ok=True)  # not its parents: a run that was deleted is not created again
    for left_over in folder.glob(".*.tmp"):  # of a process that was killed while writing
        remove(left_over)
    target = folder / f"{step:012d}"
    with replacing(target, sync=True) as aside:
        aside.mkdir()
        sums = []
        for group, arrays in checkpoint.arrays.items():
            payload = save({name: np.asarray(a, order="C") for name, a in arrays.items()})
            sums.append(_write(aside / f"{group}{_SUFFIX}", payload))
        state = {"format": FORMAT, "exarl": __version__, **checkpoint.numbers}
        # Last in the list: without its end, the list is without state.json, and so is noticed.
        sums.append(_write(aside / _STATE, json.dumps(state, indent=1).encode()))
        (aside / _SUMS).write_text("".join(sums), encoding="ascii")
    sync_to_disk(folder)
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
    """Read a checkpoint and verify every byte of it.

    CheckpointError when anything is damaged or missing, NewerFormat when a later version wrote it.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        sums = _read_sums(path)
        stored = _verified(path, _STATE, sums) if sums else read_regular(path / _STATE)
        state = json.loads(stored.decode("utf-8"))
        number, writer = state.pop("format", 0), state.pop("exarl", "?")
        if number > FORMAT:
            raise NewerFormat(
                f"checkpoint {path} has format {number}, written by EXARL {writer}; this is EXARL"
                f" {__version__}, which reads formats up to {FORMAT}"
            )
        groups = _groups(path, sums) if number else _groups_0(path, state.pop("files"))
        arrays = {group: load(payload) for group, payload in groups}
    except (*_DAMAGE, SafetensorError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged: {reason(error)}") from error
    return Checkpoint(arrays, state, number)


def find_newest(folder: Path) -> Path | None:
    """The newest checkpoint that is whole and finite; a warning names each newer one.

    NewerFormat when a later version of EXARL wrote one of those.
    """
    found = _newest(folder)
    return found[0] if found else None


def load_newest(folder: Path) -> Checkpoint | None:
    """The checkpoint that ``find_newest`` finds."""
    found = _newest(folder)
    return found[1] if found else None


def set_aside_newer(folder: Path, than: Path | None) -> None:
    """Rename the checkpoints newer than the one a run continues from.

    They are damaged, and must not push out the ones that the run will write. The newest is kept.
    """
    for path in list_checkpoints(folder):
        if than is None or int(path.name) > int(than.name):
            shutil.rmtree(aside := path.with_name(f"{path.name}.damaged"), ignore_errors=True)
            os.replace(path, aside)
    for old in sorted(folder.glob("[0-9]*.damaged"))[:-1]:  # of 12 digits each, so in their order
        shutil.rmtree(old, ignore_errors=True)


def file_sum(path: Path, group: str) -> str | None:
    """The SHA-256 of a group's file, as the checkpoint lists it; None in format 0, which has none."""
    line = _read_sums(path).get(f"{group}{_SUFFIX}")
    return line[:_DIGITS] if line else None


# -- what a checkpoint holds ------------------------------------------------------------------------


def not_finite(checkpoint: Checkpoint) -> str | None:
    """The first array of weights or of an optimiser with a number that is not finite.

    Weights of another type than floating point count as not finite.
    """
    for group, arrays in checkpoint.arrays.items():
        for name, array in arrays.items():
            learned = group.startswith("agent") and name.startswith(_LEARNED)
            if name == "weights" and learned and array.dtype.kind != "f":
                return name
            if learned and array.dtype.kind == "f" and not np.isfinite(array).all():
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


def made_for(learner: LearnerConfig, model: Mapping[str, object], spec: EnvSpec) -> dict[str, str]:
    """What a checkpoint belongs to: the agent, its network and the environment.

    Of the network's parameters ``model`` it names one that no array of the checkpoint shows.
    """
    action = _form(spec.action) if spec.n_actions is None else f"one of {spec.n_actions}"
    if spec.choices:
        numbers = [f"{spec.numbers} numbers"] if spec.mixed else []
        action = " and ".join([*numbers, *(f"one of {count}" for count in spec.choices)])
    several = {"policies": ", ".join(learner.policies)} if learner.policies else {}
    return {
        **several,
        "agent": learner.agent,
        "model_type": learner.model_type,
        "layer_norm": json.dumps(bool(model.get("layer_norm"))),
        "env": learner.env,
        "observation": _form(spec.observation),
        "action": action,
    }


def check_made_for(checkpoint: Checkpoint, run: Mapping[str, str]) -> None:
    """ValueError when a checkpoint belongs to something else than ``run``; see ``made_for``."""
    stored = checkpoint.numbers.get("made_for")
    stored = _BEFORE | (stored if isinstance(stored, dict) else {})  # format 0 does not say
    for key, value in run.items():
        if stored.get(key, value) != value:
            raise ValueError(f"{key} is {stored[key]} in the checkpoint, {value} in this run")


def difference(stored: Arrays, own: Arrays) -> str | None:
    """How the arrays of a checkpoint differ in name, shape or type from an agent's own; None: not.

    A replay is left out: the length of its arrays changes with what it holds.
    """
    there, here = (
        {name: _form(array) for name, array in arrays.items() if not name.startswith("replay/")}
        for arrays in (stored, own)
    )
    found = [
        *(f"{name} is {there[name]} in the checkpoint, {here[name]} in this agent"
          for name in here if there.get(name, here[name]) != here[name]),
        *(f"{name} is missing in the checkpoint" for name in here if name not in there),
        *(f"{name} is in the checkpoint, but not in this agent" for name in there if name not in here),
    ]  # fmt: skip
    others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{found[0]}{others}" if found else None


@contextlib.contextmanager
def fitting(
    run: RunDirectory | None,
    checkpoint: Checkpoint | None = None,
    own: Callable[[], Arrays] | None = None,
) -> Iterator[None]:
    """Turn a failure to use what a checkpoint holds into one line; the log has the traceback.

    With ``own``, which gives the agent's arrays, the line names the first array that differs.
    """
    try:
        yield
    except _MISFIT as error:
        text = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        if checkpoint is not None and own is not None:
            with contextlib.suppress(*_MISFIT):  # an agent that has taken over only a part
                text = difference(checkpoint.arrays["agent"], own()) or text
        if checkpoint is not None and checkpoint.format == 0:
            text += "; it was written by EXARL 0.1.0, before checkpoints had a format"
        where = f"{run.checkpoints}: " if run else ""
        raise CheckpointError(f"{where}the checkpoint does not fit this run: {text}") from error


# -- files ------------------------------------------------------------------------------------------


def _newest(folder: Path) -> tuple[Path, Checkpoint] | None:
    for path in list_checkpoints(folder):
        try:
            checkpoint = load_checkpoint(path)
            if (name := not_finite(checkpoint)) is not None:
                raise CheckpointError(f"checkpoint {path} has diverged: {name} is not finite")
        except NewerFormat:
            raise
        except CheckpointError as error:
            log.warning("%s; trying the one before", error)
        else:
            return path, checkpoint
    return None


def _write(path: Path, payload: bytes) -> str:
    """Write a file and return its line for ``SHA256SUMS``."""
    path.write_bytes(payload)
    return _sum_line(path.name, payload)


def _sum_line(name: str, payload: bytes) -> str:
    return f"{hashlib.sha256(payload).hexdigest()}  {name}\n"


def _read_sums(path: Path) -> dict[str, str]:
    """File name -> its line in ``SHA256SUMS``; empty where there is no such file."""
    try:
        lines = read_regular(path / _SUMS).decode("ascii").splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    sums = {line[_DIGITS + 2 : -1]: line for line in lines}
    if len(sums) < len(lines) or _STATE not in sums:
        raise ValueError(_SUMS)
    return sums


def _verified(path: Path, name: str, sums: Mapping[str, str]) -> bytes:
    payload = read_regular(path / name)
    if _sum_line(name, payload) != sums[name]:
        raise ValueError(name)
    return payload


def _groups(path: Path, sums: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    if not sums:
        raise ValueError(f"{_SUMS} is missing")
    for name in sums:
        if name != _STATE:
            yield name.removesuffix(_SUFFIX), _verified(path, name, sums)


def _groups_0(path: Path, files: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Format 0: ``state.json`` has sizes and CRC-32 of the other files, and none of its own."""
    for group, (size, checksum) in files.items():
        payload = read_regular(path / f"{group}{_SUFFIX}")
        if len(payload) != size or zlib.crc32(payload) != checksum:
            raise ValueError(f"{group}{_SUFFIX}")
        yield group, payload


def _form(array: np.ndarray | ArraySpec) -> str:
    return f"{array.dtype} {list(array.shape)}"
