"""A program as environment, itself under mpiexec, started from a rank of an MPI job."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from support.jobs import EXARL, LIGHT, Job, run, summary_of, train, under_mpi, wait_until
from support.programs import EXAMPLES, MPICC, cartpole, compiled, pendulum, subject

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror")
ENV = ("--env", "ExaExternal-v0")


def rod() -> str:
    """examples/external/rod_mpi.c"""
    if MPICC is None:
        pytest.skip("no mpicc")
    return compiled(EXAMPLES / "rod_mpi.c", MPICC, FLAGS)


def test_an_mpi_solver_inside_an_mpi_job(tmp_path: Path) -> None:
    """Two ranks of EXARL's, two of the solver's; nothing is left behind."""
    solver = shlex.join(under_mpi(2, shlex.split(rod())))
    words = (*LIGHT, *ENV, "--command", solver, "--workflow", "async", "--total_steps", 300)
    run(under_mpi(2, train(tmp_path / "run", *words))).ok()
    summary = summary_of(tmp_path / "run")
    assert summary["timesteps_total"] >= 300
    assert summary["updates_total"] > 0
    assert summary["episodes_total"] >= 2  # cut by the solver after 100 steps


def test_a_solver_without_a_launcher_is_no_rank_of_the_job(tmp_path: Path) -> None:
    """A singleton that found the job's variables would fail in MPI_Init."""
    words = ("--agent", "Random-v0", *ENV, "--command", rod(), "--total_steps", 100)
    run(under_mpi(2, train(tmp_path / "run", *words))).ok()
    assert summary_of(tmp_path / "run")["timesteps_total"] >= 100


def test_a_solver_that_dies_ends_the_job_with_its_last_words(tmp_path: Path) -> None:
    words = ("--agent", "Random-v0", *ENV, "--command", subject("exit", "70"))
    ended = run(under_mpi(2, train(tmp_path / "run", *words, "--total_steps", 500)))
    assert ended.code != 0
    assert "exit code 3" in ended.err
    assert "diverged: residual 1e9" in ended.err


def test_a_killed_run_leaves_no_program(tmp_path: Path) -> None:
    words = ("--agent", "Random-v0", *ENV, "--command", subject("sleep", "50"))
    job = Job([*train(tmp_path / "run", *words, "--total_steps", "100000")])
    wait_until(lambda: len(job.pids()) == 3)
    job.process.kill()
    job.wait()  # which complains of whatever is left


@pytest.mark.slow
def test_dqn_trains_in_a_program_of_c(tmp_path: Path) -> None:
    """The command of the documentation, shortened."""
    words = [*EXARL, "train", *ENV, "--command", cartpole(), "--n_steps", "500"]
    words += ["--total_steps", "600", "--learning_starts", "100", "--hidden", "[16]"]
    run([*words, "--run_dir", str(tmp_path / "run")]).ok()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["env"]["command"] == cartpole()
    summary = summary_of(tmp_path / "run")
    assert summary["updates_total"] > 100
    assert summary["last_reward_mean"] > 8


@pytest.mark.slow
@pytest.mark.parametrize("workflow", ["sync", "async", "seed"])
def test_a_solver_that_owns_its_loop_trains_in_every_workflow(
    tmp_path: Path, workflow: str
) -> None:
    words = ("--agent", "SAC-v0", "--env", "ExaClient-v0", "--command", pendulum())
    words = (*words, "--hidden", "[16]", "--learning_starts", 100, "--envs_per_actor", 2)
    job = under_mpi(2, train(tmp_path / "run", *words, "--total_steps", 900))
    run([*job, "--workflow", workflow]).ok()
    summary = summary_of(tmp_path / "run")
    assert summary["episodes_total"] >= 3  # of 200 steps, as the solver ends them
    assert summary["updates_total"] > 50
