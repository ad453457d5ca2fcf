"""Whole runs in an environment that fails in every way: they finish, the books balance, and nothing of
a failed step is trained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import (
    LIGHT,
    Job,
    assert_same,
    dead,
    everything_of,
    newest,
    resume,
    run,
    summary_of,
    train,
    wait_until,
)

from exarl.comm.codec import BlockCodec
from exarl.envs import make_env
from exarl.envs.spaces import adapt
from exarl.types import FAILURES

KIND_OF = {"raise": "raise", "crash": "crash", "hang": "timeout", "nan": "nan", "shape": "shape"}
FAULTY = ("--env", "ExaFaulty-v0", "--env_failure", "restart", "--episode_steps", 30, "--seed", 59,
          "--agent", "Witness-v0")  # fmt: skip
INLINE = (*FAULTY, "--raise_p", 0.02, "--nan_p", 0.02, "--shape_p", 0.02, "--total_steps", 1000,
          "--max_env_failures", 99)  # fmt: skip
PROCESS = (*FAULTY, "--env_isolation", "process", "--step_timeout", 2.5, "--raise_p", 0.008,
           "--crash_p", 0.006, "--hang_p", 0.004, "--nan_p", 0.008, "--shape_p", 0.008,
           "--total_steps", 320)  # fmt: skip
"""Failures follow from the seed: with this one, each kind within 150 steps of two environments."""


def books_of(run_dir: Path) -> dict[str, Counter[str]]:
    """What the environments say they did, by their number, in the words of the metrics."""
    return {
        str(int(book.parent.name)): Counter(KIND_OF[way] for way in book.read_text().split())
        for book in (run_dir / "envs").glob("*/failures.txt")
    }


def counted_of(run_dir: Path) -> dict[str, Counter[str]]:
    """What the run has counted: in trained blocks, in those left over, and since the last one."""
    counted = {
        env: Counter(kinds)
        for env, kinds in summary_of(run_dir)["env_failures"]["environments"].items()
    }
    env, _ = make_env("ExaFaulty-v0", {})
    spaces = env.observation_space, env.action_space
    spec = adapt("", *spaces, action_kind="discrete", nactions=0, max_episode_steps=None).spec
    arrays = newest(run_dir).arrays
    rows = [r for b in BlockCodec(spec, {}).unpack(arrays["pending"]) for r in b.failures.tolist()]
    for name, array in arrays["envs"].items():
        if name.endswith("/failures"):
            rows.append([int(name.split("/")[0]), *array.tolist()])
    for number, *counts in rows:
        kinds = counted.setdefault(str(number), Counter())
        kinds.update({k: n for k, n in zip(FAILURES, counts, strict=True) if n})
    return counted


def check(folder: Path, kinds: set[str] | None, environments: int, steps: int) -> None:
    run_dir = folder / "run"
    summary, books = summary_of(run_dir), books_of(run_dir)
    assert summary["reason"] == "total_steps"
    assert summary["timesteps_total"] >= steps
    assert kinds in (None, set().union(*books.values()))
    assert len(books) == environments
    assert counted_of(run_dir) == books
    assert summary["env_restarts"] == sum(summary["env_failures"][kind] for kind in FAILURES)
    rows = np.fromfile(folder / "transitions.f32", np.float32).reshape(-1, 7)
    assert len(rows) == summary["timesteps_total"]
    assert np.isfinite(rows).all(), "no NaN reaches the agent"
    assert len(np.unique(rows, axis=0)) == len(rows), "no transition is trained twice"
    np.testing.assert_allclose(rows[:, 3] - rows[:, 0], 1 / 30, rtol=1e-3)


@pytest.mark.parametrize(
    ("workflow", "procs"),
    [("sync", 1), ("seed", 3), pytest.param("async", 3, marks=pytest.mark.slow)],
)
def test_failures_in_the_rank_itself(tmp_path: Path, workflow: str, procs: int) -> None:
    words = (*INLINE, "--workflow", workflow, "--procs", procs, "--envs_per_actor", 2)
    run(train(tmp_path / "run", *words), subject={"folder": str(tmp_path)}).ok()
    check(tmp_path, {"raise", "nan", "shape"}, 2 * max(1, procs - 1), 1000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workflow",
    [("async", "--order", "round_robin"), pytest.param(("sync",), marks=pytest.mark.slow),
     pytest.param(("rma",), marks=pytest.mark.slow)],
    ids=lambda words: words[0],
)  # fmt: skip
def test_failures_in_processes_of_their_own(tmp_path: Path, workflow: tuple[str, ...]) -> None:
    words = (*PROCESS, "--procs", 3, "--workflow", *workflow)
    ended = run(train(tmp_path / "run", *words), subject={"folder": str(tmp_path)}).ok()
    check(tmp_path, set(FAILURES) if workflow[0] != "rma" else None, 2, 320)
    assert "Segmentation fault" not in ended.err
    logs = [(tmp_path / "run" / "logs" / f"env_{i:04d}.out").read_text() for i in range(2)]
    assert any("Segmentation fault" in text for text in logs)


@pytest.mark.parametrize("isolation", [pytest.param("inline", marks=pytest.mark.slow), "process"])
def test_a_run_that_fails_now_and_then_is_resumed_to_the_bit(
    tmp_path: Path, isolation: str
) -> None:
    """Two environments of one actor, of which one fails in its own ways."""
    words = (*LIGHT, "--env", "ExaFaulty-v0", "--env_failure", "restart", "--env_isolation",
             isolation, "--envs_per_actor", 2, "--raise_p", 0.005, "--nan_p", 0.005)  # fmt: skip
    run(train(tmp_path / "whole", *words, "--total_steps", 384)).ok()
    run(train(tmp_path / "parts", *words, "--total_steps", 192)).ok()
    first = summary_of(tmp_path / "parts")["env_restarts"]
    run(resume(tmp_path / "parts", "--total_steps", 384)).ok()
    assert 0 < first < summary_of(tmp_path / "parts")["env_restarts"]
    assert_same(everything_of(tmp_path / "parts"), everything_of(tmp_path / "whole"))


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--raise_p", 1), "RuntimeError: ExaFaulty raises, as configured"),
        (("--crash_p", 1, "--env_isolation", "process", "--workflow", "async", "--procs", 2),
         "its process was killed by SIGSEGV in step"),
    ],
)  # fmt: skip
def test_after_too_many_in_a_row_the_run_stops_and_says_why(
    tmp_path: Path, words: Any, cause: str
) -> None:
    command = train(tmp_path / "run", *FAULTY, *words, "--max_env_failures", 3)
    ended = run(command, subject={"folder": str(tmp_path)})
    assert ended.code == 1
    last = ended.err.rstrip().splitlines()[-1]
    assert "environment 0 failed 3 times in a row (max_env_failures)" in last
    assert cause in last
    assert books_of(tmp_path / "run")["0"].total() == 3


def test_an_isolated_environment_goes_with_a_killed_rank(tmp_path: Path) -> None:
    words = (*LIGHT, "--env", "ExaFaulty-v0", "--env_isolation", "process", "--step_seconds", 0.01)
    job = Job(train(tmp_path / "run", *words))
    try:
        wait_until(lambda: len(job.pids()) == 3 and (tmp_path / "run" / "progress.csv").exists())
        pids = job.pids()
        job.process.kill()
        wait_until(lambda: all(map(dead, pids)), 10)
    finally:
        job.kill()
        job.process.wait()
