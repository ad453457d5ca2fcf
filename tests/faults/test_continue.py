"""Continuing a run with the same command, with a later end, and on another number of ranks."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from support.jobs import (
    DEEP,
    LIGHT,
    assert_same,
    csv_rows,
    everything_of,
    learned_rows,
    newest,
    paused,
    resume,
    run,
    run_all,
    summary_of,
    train,
    under_mpi,
)

WATCHED = ("timesteps_total", "episodes_total", "updates_total", "training_iteration")


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def test_the_same_command_continues(tmp_path: Path, light: Path) -> None:
    command = train(tmp_path / "run", *LIGHT, "--env", "Replayed-v0", "--checkpoint_interval", 0)
    paused(command, tmp_path / "pause", at=700).kill()
    assert "continuing at step 672" in run(command).ok().err
    assert_same(everything_of(tmp_path / "run"), everything_of(light))


def test_the_same_command_on_a_finished_run_changes_nothing(tmp_path: Path, light: Path) -> None:
    path = copy(light, tmp_path / "run")
    run(train(path, *LIGHT)).ok()
    assert_same(everything_of(path), everything_of(light))
    assert summary_of(path)["reason"] == "total_steps"


@pytest.mark.parametrize("procs", [1, 3])
def test_a_finished_run_says_how_to_go_on(
    tmp_path: Path, light: Path, light3: Path, procs: int
) -> None:
    path = copy(light if procs == 1 else light3, tmp_path / "run")
    before = contents(path)
    commands = [resume(path), resume(path, "--total_steps", 1200)]
    commands += [under_mpi(3, resume(path))] if procs > 1 else []
    for command in commands:
        ended = run(command).ok()
        (line,) = ended.err.strip().splitlines()
        assert "finished" in line
        assert f"exarl resume {path} --total_steps" in line
    assert contents(path) == before


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize("words", [("--seed", 6), ("--gamma", 0.5), ("--block_steps", 16)])
def test_another_run_in_the_same_place_is_refused(
    tmp_path: Path, light: Path, words: tuple[object, ...]
) -> None:
    path = copy(light, tmp_path / "run")
    for command in (train(path, *LIGHT, *words), resume(path, *words, "--total_steps", 3000)):
        ended = run(command)
        assert ended.code == 2, f"{command} was accepted"
        assert len(ended.err.strip().splitlines()) == 1
        assert str(words[0]).strip("-") in ended.err
    assert_same(everything_of(path), everything_of(light))


@pytest.mark.slow
def test_a_later_stop_equals_one_go(tmp_path: Path, deep: Path, light3: Path) -> None:
    layouts = {"1": (*DEEP, "--procs", 1), "3": (*LIGHT, "--procs", 3)}
    early = {n: train(tmp_path / n, *w, "--total_steps", 800) for n, w in layouts.items()}
    later = {name: resume(tmp_path / name, "--total_steps", 1500) for name in layouts}
    for ended in (*run_all(early).values(), *run_all(later).values()):
        ended.ok()
    assert_same(everything_of(tmp_path / "1"), everything_of(deep))
    assert_same(everything_of(tmp_path / "3"), everything_of(light3))


def test_a_later_stop_equals_one_go_when_rows_are_sparse(tmp_path: Path) -> None:
    """Beyond a thousand iterations not every one has a row; stopping early must not add one."""
    words = (*LIGHT, "--block_steps", 1)
    commands = {
        "whole": train(tmp_path / "whole", *words, "--total_steps", 2300),
        "parts": train(tmp_path / "parts", *words, "--total_steps", 2101),
    }
    for ended in run_all(commands).values():
        ended.ok()
    run(resume(tmp_path / "parts", "--total_steps", 2300)).ok()
    assert_same(everything_of(tmp_path / "parts"), everything_of(tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_on_another_number_of_ranks(
    tmp_path: Path, deep: Path, deep3: Path, before: int, after: int
) -> None:
    path = copy(deep if before == 1 else deep3, tmp_path / "run")
    earlier, steps = learned_rows(path), summary_of(path)["timesteps_total"]
    ended = run(resume(path, "--procs", after, "--total_steps", 2500)).ok()
    assert "continuing at step" in ended.err
    rows = learned_rows(path)
    assert rows[: len(earlier)] == earlier
    assert csv_rows(path)[-1]["timesteps_total"] == str(rows[-1]["timesteps_total"])
    block = 32 * max(1, after - 1)
    assert rows[len(earlier)]["timesteps_total"] == steps + block
    for one, following in itertools.pairwise(rows):
        assert all(one[name] <= following[name] for name in WATCHED)
        assert one["updates_total"] <= following["timesteps_total"]
    assert rows[-1]["updates_total"] > earlier[-1]["updates_total"]
    assert newest(path).numbers["counters"]["steps"] == rows[-1]["timesteps_total"] >= 2500
    stored = {name.split("/")[0] for name in newest(path).arrays["envs"]}
    assert stored == {str(env) for env in range(max(1, after - 1))}


def test_with_groups_of_another_size(tmp_path: Path) -> None:
    """What a snapshot needs of each member cannot be had from another number of members."""
    words = (*LIGHT, "--env", "Kept-v0", "--total_steps", 600)
    run(train(tmp_path / "run", *words)).ok()
    ended = run(resume(tmp_path / "run", "--process_per_env", 2, "--procs", 3))
    assert ended.code in (0, 2), ended.err  # continued or refused, but not broken
    if ended.code == 2:
        assert len(ended.err.strip().splitlines()) == 1


def test_nothing_to_resume(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "absent"):
        ended = run(resume(path))
        assert ended.code == 2
        assert len(ended.err.strip().splitlines()) == 1
