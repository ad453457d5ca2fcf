"""Every checkpoint is complete: what environments have done is in the replay or in blocks under way."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.jobs import resume, run, run_all, summary_of, train

from exarl.comm.codec import BlockCodec
from exarl.records.checkpoint import Checkpoint, list_checkpoints, load_checkpoint
from exarl.records.metrics import read_rows
from exarl.types import ArraySpec, EnvSpec

CODEC = BlockCodec(
    EnvSpec("Numbered-v0", ArraySpec((2,), "float32"), ArraySpec((), "int64"), 2), {}
)
WORDS = ("--agent", "Bookkeeper-v0", "--env", "Numbered-v0", "--block_steps", 4,
         "--checkpoint_interval", 0, "--keep_checkpoints", 1000)  # fmt: skip


def steps_kept(checkpoint: Checkpoint) -> Counter[tuple[int, int]]:
    """The steps that a checkpoint has, as (environment, which of its steps)."""
    pending = CODEC.unpack(checkpoint.arrays["pending"]) if "pending" in checkpoint.arrays else []
    agents = [arrays["kept"] for stem, arrays in checkpoint.arrays.items() if "agent" in stem]
    rows = [*agents, *(block.next_observations().reshape(-1, 2) for block in pending)]
    return Counter((int(number), int(step)) for array in rows for number, step in array)


def steps_made(checkpoint: Checkpoint) -> Counter[tuple[int, int]]:
    """The steps that the environments of a checkpoint have made."""
    envs = checkpoint.arrays["envs"].items()
    counts = dict(a.tolist() for name, a in envs if name.endswith("numbered"))
    return Counter((number, step + 1) for number, steps in counts.items() for step in range(steps))


CASES: dict[str, tuple[Any, ...]] = {
    "sync": ("sync", 1),
    "seed": ("seed", 1),
    "async": ("async", 1),
    "async, 2 learners": ("async", 2),
    "async, 3 learners": ("async", 3),
    "rma, stack": ("rma", 1, "--structure", "stack"),
    "rma, 2 learners": ("rma", 2),
    "rma, 2 learners, random": ("rma", 2, "--window_selection", "random"),
    "rma, 3 learners, central": ("rma", 3, "--location", "central"),
    "async, together": ("async", 1, "--agent", "Joining-v0"),
    "async, together, lag": ("async", 1, "--agent", "Joining-v0", "--max_policy_lag", 4),
    "rma, together": ("rma", 1, "--agent", "Joining-v0"),
    "seed, together": ("seed", 1, "--agent", "Joining-v0"),
    "rma, 3 learners, lag": ("rma", 3, "--max_policy_lag", 2),
}


def command(path: Path, case: str) -> list[str]:
    workflow, learners, *words = CASES[case]
    procs = ("--learner_procs", learners, "--procs", learners + 3, "--workflow", workflow)
    return train(path / case, *WORDS, *procs, *words, "--total_steps", 600)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("complete")
    for ended in run_all({case: command(folder, case) for case in CASES}).values():
        ended.ok()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_no_step_is_missing_and_none_is_there_twice(runs: Path, case: str) -> None:
    check(runs / case, Counter())


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if "together" in case])
def test_blocks_that_wait_are_trained_together_and_counted_one_by_one(
    runs: Path, case: str
) -> None:
    summary = summary_of(runs / case)
    blocks, rows = summary["blocks"], read_rows(runs / case / "result.jsonl")
    assert rows[-1]["training_iteration"] < blocks["trained"], "none were trained together"
    assert blocks["trained"] + blocks["left"] + blocks["dropped"] == blocks["produced"]
    assert summary["timesteps_total"] == blocks["trained"] * 4 == 600
    if "lag" in case:
        assert max(row["policy_lag_max"] for row in rows) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_nor_are_they_after_a_resume(tmp_path: Path, case: str) -> None:
    run(command(tmp_path, case)).ok()
    before = check(tmp_path / case, Counter())
    run(resume(tmp_path / case, "--total_steps", 1200)).ok()
    check(tmp_path / case, before)


def check(path: Path, given_up: Counter[tuple[int, int]]) -> Counter[tuple[int, int]]:
    """Look at all checkpoints of a run and forget them, but for the last; what that lacks.

    Blocks that actors give up when the run ends are lost, and only these: ``given_up`` by an earlier
    part of the run.
    """
    last, *found = list_checkpoints(path / "checkpoints")
    assert found
    lacking = []
    for kept in found:
        checkpoint = load_checkpoint(kept)
        if steps_made(checkpoint) - steps_kept(checkpoint) != given_up:
            lacking.append(kept.name)
        assert not steps_kept(checkpoint) - steps_made(checkpoint), "a step will be made again"
        shutil.rmtree(kept)
    assert not lacking, f"{len(lacking)} of {len(found)} checkpoints lack a block"
    checkpoint = load_checkpoint(last)
    assert not steps_kept(checkpoint) - steps_made(checkpoint)
    return steps_made(checkpoint) - steps_kept(checkpoint)
