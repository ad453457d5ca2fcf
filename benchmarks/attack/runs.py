"""Runs that are attacked: how they are made, and what must be the same in two that are equal."""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.attack.jobs import exarl
from benchmarks.attack.subjects import AGENT, COUNTED

from exarl.comm.codec import BlockCodec
from exarl.records.checkpoint import Checkpoint, load_newest
from exarl.types import EnvSpec

SHORT = ("--seed", "5", "--total_steps", "640", "--block_steps", "16", "--envs_per_actor", "2")
TRAIN = ("train", "--agent", AGENT, "--env", COUNTED, *SHORT)
OFTEN = ("--checkpoint_interval", "0")
MEASURED = (
    *("time_total_s", "steps_per_s", "updates_per_s"),
    *("core_hours_simulated", "core_hours_learner", "core_hours_total"),
)


def reference(folder: Path, name: str, *words: str) -> Path:
    """The run that ``exarl WORDS`` makes undisturbed, in ``folder``; made once."""
    work = folder / name
    if not (work / "run" / "summary.json").exists():
        work.mkdir(parents=True)
        ended = exarl([*words, "--run_dir", "run"], work, limit=180)
        if problem := ended.wrong(0):
            raise RuntimeError(f"the undisturbed run went wrong: {problem}\n{ended.err}")
    return work / "run"


def copied(run: Path, work: Path) -> Path:
    """A copy of a reference to be damaged, in a folder to work in, with the same home."""
    work.mkdir(parents=True, exist_ok=True)
    home = run.parent.parent / f"{run.parent.name}.home"
    shutil.copytree(home, work.parent / f"{work.name}.home", dirs_exist_ok=True)
    shutil.copytree(run, work / "run")
    return work / "run"


# -- equal runs --------------------------------------------------------------------------------------


def fingerprint(run: Path) -> dict[str, str]:
    """Digests of all that equal runs have equal, by name."""
    checkpoint = load_newest(run / "checkpoints")
    if checkpoint is None:
        return {"checkpoint": "none"}
    found = {
        f"{stem}/{name}": digest(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        for stem, named in checkpoint.arrays.items()
        for name, array in named.items()
    }
    numbers = json.loads(json.dumps(checkpoint.numbers))
    for name in ("seconds", "simulated_core_s", "learner_core_s"):
        numbers["counters"].pop(name, None)
    for name, value in numbers.items():
        found[f"state.json/{name}"] = digest(json.dumps(value, sort_keys=True).encode())
    with (run / "progress.csv").open(encoding="utf-8", newline="") as file:
        rows = [{k: v for k, v in row.items() if k not in MEASURED} for row in csv.DictReader(file)]
    found["progress.csv"] = digest(json.dumps(rows).encode())
    return found


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def differences(run: Path, expected: dict[str, str]) -> str:
    """What differs in a run from a fingerprint; empty when nothing does."""
    try:
        found = fingerprint(run)
    except (OSError, ValueError, KeyError) as error:
        return f"unreadable: {error}"
    names = [n for n in {**expected, **found} if found.get(n) != expected.get(n)]
    return f"differs in {', '.join(names[:4])}" if names else ""


# -- complete checkpoints ----------------------------------------------------------------------------


Step = tuple[int, int]
"""The number of an environment, and of a step it made."""


def books(checkpoint: Checkpoint, spec: EnvSpec) -> tuple[set[Step], str]:
    """The steps that environments have made and that are neither in the memories of ``Memory`` nor
    pending, and what is wrong with the others; empty when each is there once."""
    agents = [a["seen"] for stem, a in checkpoint.arrays.items() if stem.startswith("agent")]
    rows: list[Step] = [(env, step) for seen in agents for env, step in seen.tolist()]
    for block in BlockCodec(spec, {}).unpack(checkpoint.arrays.get("pending", {})):
        after = block.next_observations()
        named = after.reshape(-1, after.shape[-1])[:, :2].astype(int)
        rows += [(env, step) for env, step in named.tolist()]
    envs = checkpoint.arrays["envs"]
    counts = {int(n.split("/")[0]): int(a) for n, a in envs.items() if n.endswith("/env/count")}
    made = {(env, step) for env, count in counts.items() for step in range(1, count + 1)}
    counted = Counter(rows)
    if twice := [row for row, times in counted.items() if times > 1]:
        return set(), f"{len(twice)} steps are there twice, such as {named_step(min(twice))}"
    if extra := set(counted) - made:
        return set(), f"{len(extra)} steps are of a future, such as {named_step(min(extra))}"
    return made - set(counted), ""


def named_step(step: Step) -> str:
    return f"step {step[1]} of environment {step[0]}"


def stored_spec(run: Path) -> EnvSpec:
    """What the environment of a run looks like."""
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    return EnvSpec.from_json(manifest["spec"])


def tree(folder: Path) -> dict[str, Any]:
    """Every path below a folder, with what changes when it is written to."""
    found = {}
    for path in folder.rglob("*"):
        at = path.lstat()
        found[str(path.relative_to(folder))] = (at.st_mode, at.st_size, at.st_mtime_ns, at.st_ino)
    return found


def trusted(words: list[str], rng: random.Random) -> list[str]:
    """The command with ``--trust``, which a run that was changed may need, where there is such a flag
    and by chance."""
    return [*words, "--trust"] if _knows_trust(words[0]) and rng.random() < 0.8 else words


@functools.cache
def _knows_trust(command: str) -> bool:
    from exarl.cli import evaluate, export, train

    texts = {"resume": train.RESUME_HELP, "evaluate": evaluate.HELP, "export": export.HELP}
    return "--trust" in texts.get(command, "")
