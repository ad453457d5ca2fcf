"""The sync workflow on 1, 2, 4 and 6 ranks: the same run however it is started or laid out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.jobs import (
    DEEP,
    EXARL,
    LAUNCHER,
    LIGHT,
    SMALL,
    Ended,
    assert_same,
    everything_of,
    learned_rows,
    learning_of,
    reference,
    run,
    run_all,
    summary_of,
    train,
    under_mpi,
)

BLOCK = 32


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one seed, by ``--procs``, by mpiexec and in one process; DQN on up to two ranks."""
    folder = tmp_path_factory.mktemp("sync")
    commands = {
        "plain": train(folder / "plain", *SMALL),
        "serial": train(folder / "serial", *SMALL, "--serial"),
        "other": train(folder / "other", *LIGHT, "--seed", 6),
    }
    for ranks in (1, 2, 4, 6):
        words = SMALL if ranks < 3 else LIGHT
        name = f"mpiexec{ranks}"
        commands[name] = under_mpi(ranks, train(folder / name, *words))
        if ranks > 1:
            name = f"procs{ranks}"
            commands[name] = train(folder / name, *words, "--procs", ranks)
    for ended in run_all(commands).values():
        ended.ok()
    return folder


@pytest.mark.parametrize("other", ["serial", "mpiexec1"])
def test_one_rank_is_the_same_run_however_started(runs: Path, other: str) -> None:
    assert_same(everything_of(runs / other), everything_of(runs / "plain"))


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_procs_and_mpiexec_are_the_same_run_twice(runs: Path, ranks: int) -> None:
    assert_same(everything_of(runs / f"procs{ranks}"), everything_of(runs / f"mpiexec{ranks}"))


def test_one_actor_apart_learns_what_one_process_learns(runs: Path) -> None:
    """The result depends on the number of environments, and both have one."""
    assert_same(everything_of(runs / "mpiexec2"), everything_of(runs / "plain"))


@pytest.mark.slow
def test_another_seed_is_another_run(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    same = reference(tmp_path_factory.getbasetemp(), "light1", *LIGHT, "--procs", 1)
    assert learned_rows(runs / "other") != learned_rows(same)


@pytest.mark.parametrize("ranks", [1, 2, 4, 6])
def test_every_block_is_counted_once(runs: Path, ranks: int) -> None:
    actors = max(1, ranks - 1)
    rows, summary = learned_rows(runs / f"mpiexec{ranks}"), summary_of(runs / f"mpiexec{ranks}")
    assert [row["timesteps_total"] for row in rows] == [
        BLOCK * actors * (i + 1) for i in range(len(rows))
    ]
    assert summary["timesteps_total"] == rows[-1]["timesteps_total"] >= 1500
    assert summary["timesteps_total"] < 1500 + BLOCK * actors
    assert summary["reason"] == "total_steps"
    assert {row["policy_lag_max"] for row in rows} == {0}


@pytest.mark.parametrize("ranks", [1, 2, 4, 6])
def test_every_rank_has_a_log(runs: Path, ranks: int) -> None:
    logs = sorted((runs / f"mpiexec{ranks}" / "logs").iterdir())
    assert [log.name for log in logs] == [f"rank_{rank:04d}.log" for rank in range(ranks)]
    for rank, log in enumerate(logs):
        assert f"rank {rank} of {ranks}" in log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_environments_may_share_actors(tmp_path: Path) -> None:
    """Four environments on one, two and four actors, and in the learner's own process."""
    words = (*LIGHT, "--total_steps", 3000)
    layouts = {"alone": (1, 4), "one": (2, 4), "two": (3, 2), "four": (5, 1)}
    ended = run_all(
        {
            name: train(tmp_path / name, *words, "--envs_per_actor", envs, "--procs", ranks)
            for name, (ranks, envs) in layouts.items()
        }
    )
    for name in layouts:
        ended[name].ok()
        assert_same(everything_of(tmp_path / name), everything_of(tmp_path / "alone"))


@pytest.mark.slow
def test_environments_may_have_several_ranks(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One environment of 2 ranks (DQN) and of 3, two of 2: what those of one rank each learn."""
    base = tmp_path_factory.getbasetemp()
    env = ("--env", "ExaCartPole-v1", "--process_per_env")
    layouts = {"1x2": (*DEEP, *env, 2), "1x3": (*LIGHT, *env, 3), "2x2": (*LIGHT, *env, 2)}
    procs = {"1x2": 3, "1x3": 4, "2x2": 5}
    jobs = {n: train(tmp_path / n, *words, "--procs", procs[n]) for n, words in layouts.items()}
    for ended in run_all(jobs).values():
        ended.ok()
    expected = {
        "1x2": reference(base, "deep1", *DEEP),
        "1x3": reference(base, "light1", *LIGHT, "--procs", 1),
        "2x2": reference(base, "light3", *LIGHT, "--procs", 3),
    }
    for name, whole in expected.items():
        assert_same(learning_of(tmp_path / name), learning_of(whole))


def said_in(ended: Ended) -> list[str]:
    """What EXARL said on standard error; Open MPI's launcher adds lines of its own."""
    assert "Traceback" not in ended.err
    lines = ended.err.strip().splitlines()
    return [line for line in lines if line.startswith("exarl:")] if LAUNCHER.open_mpi else lines


@pytest.mark.parametrize(
    ("ranks", "words", "works"),
    [
        (3, ("--process_per_env", 3), "4"),
        (2, ("--learner_procs", 2), "3"),
        (1, ("--process_per_env", 2), "3"),
    ],
)
def test_wrong_counts_are_refused_in_one_line(
    tmp_path: Path, ranks: int, words: tuple[object, ...], works: str
) -> None:
    command = train(tmp_path / "run", *LIGHT, *words)
    for ended in (run(under_mpi(ranks, command)), run([*command, "--procs", str(ranks)])):
        lines = said_in(ended)
        assert ended.code == 2
        assert len(lines) == 1, ended.err
        assert lines[0].startswith(f"exarl: {ranks} rank")
        assert works in lines[0].rsplit(":", 1)[1]
    assert not (tmp_path / "run").exists()


LATE = """
import os, time
if "0" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
    time.sleep(1)
"""


def test_bad_input_is_told_once_under_mpiexec(tmp_path: Path) -> None:
    """Also when the first rank is late: Open MPI ends a job as soon as one of its ranks fails."""
    late, work = tmp_path / "late", tmp_path / "work"
    for folder in (late, work):
        folder.mkdir()
    (late / "sitecustomize.py").write_text(LATE)
    path = {"PYTHONPATH": os.pathsep.join([str(late), os.environ.get("PYTHONPATH", "")])}
    for environ in ({}, path):
        command = under_mpi(3, [*EXARL, "train", "--epsilonn", "1"])
        ended = run(command, cwd=work, environ=environ)
        assert ended.code == 2
        assert len(said_in(ended)) == 1
        assert not list(work.iterdir())
