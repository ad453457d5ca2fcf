"""Damaged checkpoints, also with checksums that fit: ``resume``, ``evaluate`` and ``export``.

Each must refuse them in one line, pass them over, or work. Silent nonsense is a run that continues from
damage as if nothing were wrong, a policy that is not the run's, or numbers that are not finite.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.attack.jobs import Ended, exarl
from benchmarks.attack.runs import (
    OFTEN,
    SHORT,
    TRAIN,
    copied,
    differences,
    fingerprint,
    reference,
    trusted,
)
from benchmarks.attack.tries import Attempt
from safetensors.numpy import load, save

TRIES = 500
LATER = ("--total_steps", "800")
DEEP = ("train", "--agent", "DQN-v0", "--env", "CartPole-v1", *SHORT, "--learning_starts", "64")
FRESH = 0.02  # of the tries are made in a Python of their own

Damage = Callable[[random.Random, Path], str]
"""Damages the checkpoint in a folder and says how."""


def prepare(folder: Path) -> None:
    """Runs to be damaged, the same ones continued, and what they answer undamaged."""
    for name, words in (("light", TRAIN), ("deep", (*DEEP, "--hidden", "[8]"))):
        run = reference(folder, f"checkpoints-{name}", *words, *OFTEN)
        reference(folder, f"checkpoints-{name}-later", *words, *OFTEN, *LATER)
        for command in ("evaluate", "export"):
            work = folder / f"checkpoints-{name}-{command}"
            if not work.exists() and (name, command) != ("light", "export"):
                copied(run, work)
                ended = exarl([*words_of(command), "--trust"], work)  # a copy has no valid seal
                if problem := ended.wrong(0):
                    raise RuntimeError(f"{command} of an undamaged run: {problem}")
                (work / "answer").write_text(ended.out)


def words_of(command: str) -> list[str]:
    return {
        "resume": ["resume", "run", *LATER],
        "evaluate": ["evaluate", "run", "--episodes", "2"],
        "export": ["export", "run", "--format", "npz", "--output", "policy.npz", "--force"],
    }[command]


def attempt(rng: random.Random, references: Path, work: Path) -> Attempt:
    """Damage the newest checkpoint, or all, and see what a command makes of it."""
    name, command = rng.choices(
        [
            ("light", "resume"),
            ("light", "evaluate"),
            ("deep", "evaluate"),
            ("deep", "export"),
            ("deep", "resume"),
        ],
        [45, 15, 20, 17, 3],
    )[0]
    run = copied(references / f"checkpoints-{name}" / "run", work)
    every = sorted((run / "checkpoints").iterdir(), reverse=True)
    chosen = every if rng.random() < 0.3 else every[:1]
    deed = rng.choices(
        [damage_file, damage_folder, damage_arrays, change_arrays], [30, 25, 35, 10]
    )[0]
    state = rng.getstate()
    told = ""
    for path in chosen:
        rng.setstate(state)  # the same damage to each
        told = deed(rng, path)
    words = trusted(words_of(command), rng)
    ended = exarl(words, work, limit=25, fresh=rng.random() < FRESH)
    what = f"{' '.join(words)} ({name}), {len(chosen)} checkpoints: {told}"
    problem = ended.wrong(0, 1, 2, 3)  # huge weights are answered as a divergence
    if not problem and ended.code == 0:
        # What an environment's own state looks like is known to the environment alone.
        detectable = deed is not change_arrays and "/env/" not in told
        problem = nonsense(ended, command, name, references, work, detectable)
    return Attempt(what, problem)


def nonsense(
    ended: Ended, command: str, name: str, references: Path, work: Path, detectable: bool
) -> str:
    """What is wrong with a command that says it went well."""
    if re.search(r"\b(nan|inf)\b", ended.out) and not ended.err:
        return f"numbers that are not finite, without a word: {ended.out[-200:]!r}"
    if not detectable:
        return ""
    if command == "resume":
        expected = fingerprint(references / f"checkpoints-{name}-later" / "run")
        found = differences(work / "run", expected)
        return found and f"continued from a damaged checkpoint: {found}"
    good = (references / f"checkpoints-{name}-{command}" / "answer").read_text()
    if ended.out != good and not re.search("damaged|diverged", ended.err):
        return f"another answer without a word: {ended.out[-200:]!r}"
    return ""


# -- files as they are -------------------------------------------------------------------------------


def damage_file(rng: random.Random, path: Path) -> str:
    """One file of the checkpoint is not what was written, and no checksum fits."""
    file = rng.choice(sorted(path.iterdir()))
    other = rng.choice([each for each in sorted(path.iterdir()) if each != file])
    data = file.read_bytes()
    way = rng.choice(["cut", "flipped", "empty", "gone", "longer", "swapped", "zeros", *SPECIAL])
    match way:
        case "cut":
            file.write_bytes(data[: rng.randrange(len(data) or 1)])
        case "flipped":
            where, changed = rng.randrange(len(data) or 1), bytearray(data or b"\0")
            changed[where] ^= 1 << rng.randrange(8)
            file.write_bytes(changed)
        case "empty":
            file.write_bytes(b"")
        case "gone":
            file.unlink()
        case "longer":
            file.write_bytes(data + rng.randbytes(rng.randint(1, 99)))
        case "swapped":
            file.write_bytes(other.read_bytes())
            other.write_bytes(data)
        case "zeros":
            file.write_bytes(bytes(len(data)))
        case _:
            file.unlink()
            SPECIAL[way](file)
    return f"{file.name} {way}"


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def node(path: Path) -> None:
    """/dev/zero under another name, or a link to it where that is not allowed."""
    try:
        os.mknod(path, 0o20666, os.makedev(1, 5))
    except OSError:
        path.symlink_to("/dev/zero")


SPECIAL: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": node,
    "a socket": unix_socket,
    "a folder": Path.mkdir,
    "a sparse file of a TiB": sparse,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to /dev/tty": lambda path: path.symlink_to("/dev/tty"),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to /proc/kmsg": lambda path: path.symlink_to("/proc/kmsg"),
}


def damage_folder(rng: random.Random, path: Path) -> str:
    """Names and things among the checkpoints, or in one, that do not belong there."""
    folder = path.parent
    name = rng.choice(
        [
            "²",
            "٣",
            "۹۹۹",
            "9" * 200,
            "-1",
            "0",
            "1e5",
            " 7",
            "junk",
            "00000000099a",
            "a\nb",
            "é",
            "000000009999",
            "000000009999.damaged",
            ".000000000999.tmp",
            "999999999999999999999",
        ]
    )
    raw = os.fsencode(folder) + b"/\xff\xfe99"
    way = rng.choice(["empty folder", "file", "copy", "inside", "not text", "whole", *SPECIAL])
    target = folder / name
    if os.path.lexists(target) and way not in ("inside", "not text", "whole"):
        return f"{way} called {name!r}"  # the one before has it already
    match way:
        case "empty folder":
            target.mkdir()
        case "file":
            target.write_text("x")
        case "copy":
            shutil.copytree(path, target, dirs_exist_ok=True)
            (target / "agent.safetensors").write_bytes(b"x")
        case "inside":
            inside = rng.choice(list(SPECIAL))
            SPECIAL[inside](path / "extra")
            return f"{inside} more in it"
        case "not text":
            os.makedirs(raw, exist_ok=True)  # noqa: PTH103 - the name is bytes
        case "whole":
            inside = rng.choice(list(SPECIAL))
            if folder.is_dir():
                shutil.rmtree(folder)
                SPECIAL[inside](folder)
            return f"'checkpoints' is {inside}"
        case _:
            SPECIAL[way](target)
    return f"{way} called {name!r}"


# -- arrays, with the right checksums ----------------------------------------------------------------


def rewrite(path: Path, stem: str, payload: bytes, listed: str | None = None) -> None:
    """Store a file of a checkpoint with the checksum that fits it."""
    (path / f"{stem}.safetensors").write_bytes(payload)
    sums = listed_sums(path)
    sums[f"{stem if listed is None else listed}.safetensors"] = hashlib.sha256(payload).hexdigest()
    list_sums(path, sums)


def listed_sums(path: Path) -> dict[str, str]:
    """File name -> checksum, as SHA256SUMS of a checkpoint has them."""
    lines = (path / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def list_sums(path: Path, sums: dict[str, str]) -> None:
    """Write SHA256SUMS of a checkpoint, state.json last."""
    names = sorted(sums, key="state.json".__eq__)
    (path / "SHA256SUMS").write_text("".join(f"{sums[name]}  {name}\n" for name in names))


def damage_arrays(rng: random.Random, path: Path) -> str:
    """Arrays that cannot be those of this run, though the checksums fit."""
    if rng.random() < 0.35:
        return damage_format(rng, path)
    stem = rng.choice(["agent", "agent", "envs"])
    arrays = load((path / f"{stem}.safetensors").read_bytes())
    names = sorted(n for n in arrays if n != "seen" and not n.endswith("/padding"))
    name = "weights" if stem == "agent" and rng.random() < 0.5 else rng.choice(names)
    array = arrays[name]
    way = rng.choice(["missing", "renamed", "longer", "reshaped", "empty", "bool", "nan", "inf"])
    match way:
        case "missing":
            del arrays[name]
        case "renamed":
            arrays[name + "x"] = arrays.pop(name)
        case "longer":
            arrays[name] = np.concatenate([array.reshape(-1)] * 2 + [np.zeros(1, array.dtype)])
        case "reshaped":
            arrays[name] = (
                array.reshape(1, 1, *array.shape, 1) if array.ndim else np.stack([array] * 3)
            )
        case "empty":
            arrays[name] = np.zeros(0, array.dtype)
        case "bool":
            arrays[name] = (
                np.zeros(array.shape, bool) if array.any() else np.ones(array.shape, bool)
            )
        case _:
            arrays[name] = np.full(array.shape, np.float32(way))
    rewrite(path, stem, save(arrays))
    return f"{stem}: {name} {way}"


def damage_format(rng: random.Random, path: Path) -> str:
    """A file that is no safetensors file of this run, with the checksum that fits."""
    stem = rng.choice(["agent", "envs", "pending"])
    good = (path / f"{stem}.safetensors").read_bytes()
    entry = {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}
    payloads: dict[str, bytes] = {
        "no bytes": b"",
        "a header of 2^63 bytes": (1 << 63).to_bytes(8, "little") + b"{}",
        "a nested header": headed("[" * 100_000),
        "a shape that is not there": headed(json.dumps({"weights": entry}), bytes(4)),
        "cut": good[: rng.randrange(len(good) or 1)],
        "noise": rng.randbytes(300),
        "a list as header": headed("[]"),
        "offsets beyond the end": headed(
            json.dumps({"weights": {**entry, "shape": [2], "data_offsets": [0, 8]}}), b"1234"
        ),
    }
    way = rng.choice([*payloads, "not listed", "path out of the folder", "listed but missing"])
    if way == "not listed":
        stem = "agent" if stem == "pending" else stem  # without 'pending' a checkpoint is complete
        sums = listed_sums(path)
        del sums[f"{stem}.safetensors"]
        list_sums(path, sums)
    elif way == "path out of the folder":
        rewrite(path, "agent", (path / "agent.safetensors").read_bytes(), "../../../../etc/passwd")
    elif way == "listed but missing":
        rewrite(path, stem, good)
        (path / f"{stem}.safetensors").unlink()
    else:
        rewrite(path, stem, payloads[way])
    return f"{stem}: {way}, checksum fits"


def headed(header: str, data: bytes = b"") -> bytes:
    """A safetensors file with this header."""
    return len(header).to_bytes(8, "little") + header.encode() + data


def change_arrays(rng: random.Random, path: Path) -> str:
    """Arrays with other values, which nothing can know to be wrong."""
    stem = rng.choice(["agent", "envs"])
    arrays = {n: np.array(a) for n, a in load((path / f"{stem}.safetensors").read_bytes()).items()}
    name = rng.choice(sorted(n for n in arrays if n != "seen"))
    flat = arrays[name].reshape(-1)
    if not flat.size:
        return "nothing"
    where = rng.randrange(flat.size)
    if flat.dtype.kind == "f":
        flat[where] = rng.choice([0.0, -1.0, 1e30, -1e-30, 3e38])
    elif flat.dtype.kind in "iu":
        flat[where] = rng.choice([0, 1, 2**31 - 1, 2**62]) % np.iinfo(flat.dtype).max
    else:
        flat[where] = ~flat[where]
    rewrite(path, stem, save(arrays))
    return f"{stem}: {name}[{where}] = {flat[where]}"
