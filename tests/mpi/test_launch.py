"""Ways to start a run on several ranks, and what each rank leaves behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.jobs import (
    DEEP,
    EXARL,
    LIGHT,
    PYTHON,
    assert_same,
    everything_of,
    newest,
    reference,
    run,
    summary_of,
    train,
    under_mpi,
)

from exarl.comm.threads import THREADS

RunBody = Callable[[str, int], list[dict[str, Any]]]

DRIVER = """\
from mpi4py import MPI
import exarl
comm = MPI.COMM_WORLD
exa_learner = exarl.ExaLearner(comm)
exa_learner.run()
"""

TOLD = """\
import os, pathlib, gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Told(CartPoleEnv):
    def __init__(self):
        super().__init__()
        pathlib.Path(os.environ["TOLD"]).write_text(os.environ["OMP_NUM_THREADS"])

gymnasium.register("Told-v0", Told, max_episode_steps=50)
"""

WITH_MPI = """\
import gymnasium
from mpi4py import MPI
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

gymnasium.register("Met-v0", CartPoleEnv, max_episode_steps=50)
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_five_line_script(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, ranks: int
) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    run(under_mpi(ranks, [PYTHON, script, "--run_dir", tmp_path / "run", *LIGHT])).ok()
    whole = reference(tmp_path_factory.getbasetemp(), f"light{ranks}", *LIGHT, "--procs", ranks)
    assert_same(everything_of(tmp_path / "run"), everything_of(whole))


def test_the_script_needs_no_launcher(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    run([PYTHON, script, *LIGHT, "--output_dir", tmp_path / "out"], cwd=tmp_path).ok()
    (made,) = (tmp_path / "out").iterdir()
    whole = reference(tmp_path_factory.getbasetemp(), "light1", *LIGHT, "--procs", 1)
    assert_same(everything_of(made), everything_of(whole))


def test_an_environment_of_one_s_own_by_its_module(tmp_path: Path) -> None:
    """``module:Id`` imports the module on every rank, as Gymnasium's ``make`` does."""
    words = ("--env", "subjects:Kept-v0", "--process_per_env", 2, "--total_steps", 200)
    run(train(tmp_path / "run", *words, "--learning_starts", 1000, "--procs", 3)).ok()
    assert summary_of(tmp_path / "run")["timesteps_total"] == 224


def test_both_ways_give_a_rank_the_same_threads(tmp_path: Path) -> None:
    """What an OpenMP simulation reads is an actor's core, not the launcher's many. A learner has
    the cores that are left."""
    words = ("--agent", "Random-v0", "--env", "threads_told:Told-v0", "--total_steps", 32)
    (tmp_path / "threads_told.py").write_text(TOLD)
    unset = [f"-u{name}" for name in THREADS]
    told = []
    for name in ("procs", "mpiexec"):
        command = train(tmp_path / name, *words)
        command = [*command, "--procs", "2"] if name == "procs" else under_mpi(2, command)
        environ = {"TOLD": str(tmp_path / f"{name}.txt")}
        run(["env", *unset, *command], cwd=tmp_path, environ=environ).ok()
        told.append((tmp_path / f"{name}.txt").read_text())
        cores = len(os.sched_getaffinity(0))
        for rank, share in enumerate((max(1, cores - 1), 1)):
            log = (tmp_path / name / "logs" / f"rank_{rank:04d}.log").read_text()
            assert f"cores of this rank: {share} of {cores}\n" in log
    assert told == ["1"] * 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_ranks_share_the_cores_that_they_may_use(run_body: RunBody) -> None:
    cores = len(os.sched_getaffinity(0))
    found = run_body("cores", 3)
    assert [rank["free"] for rank in found] == [[cores, 1, 2]] * 3
    assert [rank["bound"] for rank in found] == [[1, 1, 1], [1, 1, 1], [1, 0, 1]]


def test_learners_are_spread_over_machines(run_body: RunBody, tmp_path: Path) -> None:
    found = run_body("placement", 6)
    assert [rank["rank"] for rank in found] == [0, 2, 4, 1, 3, 5]
    assert [rank["trained"] for rank in found] == [True, *[False] * 5]
    assert summary_of(tmp_path / "run")["timesteps_total"] >= 400
    log = (tmp_path / "run" / "logs" / "rank_0001.log").read_text()
    assert "rank 1 of 6, learner" in log


def test_xla_has_as_many_threads_as_the_rank_has_cores() -> None:
    program = """if True:
        import os, pathlib
        from exarl.comm.threads import Sharing, divide_cores
        divide_cores(os.environ, Sharing(cores=9, learners=1, others=4), learns=True)
        from exarl.agents.compiled import jnp
        jnp.ones(3).block_until_ready()
        names = [task.read_text() for task in pathlib.Path("/proc/self/task").glob("*/comm")]
        print(sum("XLAEigen" in name for name in names))"""
    unset = [f"-u{name}" for name in THREADS]
    assert run(["env", *unset, PYTHON, "-c", program]).ok().out == "5\n"


def test_an_evaluation_under_mpiexec_plays_once(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also where the environment starts MPI, which waits for all ranks there are."""
    (tmp_path / "with_mpi.py").write_text(WITH_MPI)
    words = ("--agent", "Random-v0", "--env", "with_mpi:Met-v0", "--total_steps", 32)
    run(train(tmp_path / "run", *words), cwd=tmp_path).ok()
    command = [*EXARL, "evaluate", tmp_path / "run", "--episodes", 2]
    alone = run(command, cwd=tmp_path).ok()
    assert run(under_mpi(2, command), cwd=tmp_path).ok().out == alone.out
    assert alone.out.count("greedy") == 1


def test_nothing_is_pickled_while_training(run_body: RunBody, tmp_path: Path) -> None:
    assert run_body("no_pickle", 2) == [{"reason": "total_steps"}, {"reason": None}]
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) > 1


def test_the_trace_has_a_track_for_each_rank(tmp_path: Path) -> None:
    group = ("--env", "ExaCartPole-v1", "--process_per_env", 2, "--procs", 5)
    run(train(tmp_path / "run", *LIGHT, *group, "--profile", "trace")).ok()
    events = json.loads((tmp_path / "run" / "trace.json").read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names) == list(range(5))
    roles = ["learner", "actor", "member", "actor", "member"]
    for rank, role in enumerate(roles):
        assert role in names[rank]
    spans: dict[int, set[str]] = {rank: set() for rank in names}
    for event in events:
        if event["ph"] == "X":
            spans[event["pid"]].add(event["name"])
    assert {"learn", "wait", "checkpoint"} <= spans[0]
    for actor in (1, 3):
        assert {"rollout", "wait", "send"} <= spans[actor]
    parts = [path.name for path in (tmp_path / "run" / "logs").iterdir()]
    assert sorted(parts) == [f"rank_{rank:04d}.log" for rank in range(5)]


@pytest.mark.parametrize("workflow", ["sync", "async", "seed"])
def test_each_rank_tells_what_it_does_while_the_run_goes_on(tmp_path: Path, workflow: str) -> None:
    words = ("--workflow", workflow, "--procs", 3, "--profile", "lanes")
    run(train(tmp_path / "run", *LIGHT, *words)).ok()
    seen: list[set[str]] = []
    for rank in range(3):
        lines = (tmp_path / f"run/logs/lanes_{rank:04d}.jsonl").read_text().splitlines()
        told = [json.loads(line) for line in lines]
        assert all(row["role"] == ("actor" if rank else "learner") for row in told)
        assert all(seconds > 0 for row in told for seconds in row["s"].values())
        assert told[-1]["rss_mb"] > 10
        seen.append({name for row in told for name in row["s"]})
    assert {"learn", "wait"} <= seen[0]
    assert all({"env", "wait"} <= names for names in seen[1:])
    assert all("rollout" not in names for names in seen)


def test_the_learner_has_the_acting_weights_in_its_checkpoint(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    whole = reference(tmp_path_factory.getbasetemp(), "deep1", *DEEP)
    weights = newest(whole).arrays["agent"]["weights"]
    assert weights.dtype == "float32"
    assert weights.ndim == 1
    assert summary_of(whole)["updates_total"] > 1000
