"""Damaged checkpoints are named and passed over; the run still ends as if undisturbed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.jobs import (
    LIGHT,
    assert_same,
    everything_of,
    learning_of,
    newest,
    paused,
    resume,
    run,
    train,
)

from exarl.errors import CheckpointError
from exarl.records.checkpoint import list_checkpoints, load_checkpoint


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def remove(path: Path) -> None:
    path.unlink()


def garble(path: Path) -> None:
    path.write_text('{"files": [1, 2]}')


def copy_of(killed: Path, tmp_path: Path) -> tuple[Path, list[Path]]:
    run_dir = tmp_path / "run"
    shutil.copytree(killed, run_dir)
    kept = list_checkpoints(run_dir / "checkpoints")
    assert len(kept) == 3
    return run_dir, kept


def damage_all(run_dir: Path) -> None:
    for path in list_checkpoints(run_dir / "checkpoints"):
        flip(path / "agent.safetensors")


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (truncate, "agent.safetensors"),
        (flip, "agent.safetensors"),
        (remove, "envs.safetensors"),
        (truncate, "state.json"),
        (garble, "state.json"),
        (flip, "state.json"),
        (flip, "SHA256SUMS"),
        (remove, "SHA256SUMS"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(
    killed: Path, light: Path, tmp_path: Path, damage: Callable[[Path], None], file: str
) -> None:
    run_dir, kept = copy_of(killed, tmp_path)
    damage(kept[0] / file)
    ended = run(resume(run_dir)).ok()
    assert f"checkpoint {kept[0]} is damaged" in ended.err
    assert f"continuing at step {int(kept[1].name)}" in ended.err
    assert_same(everything_of(run_dir), everything_of(light))


def test_two_of_three_damaged(killed: Path, light: Path, tmp_path: Path) -> None:
    run_dir, kept = copy_of(killed, tmp_path)
    flip(kept[0] / "agent.safetensors")
    shutil.rmtree(kept[1])
    kept[1].touch()  # not even a folder
    ended = run(resume(run_dir)).ok()
    assert f"continuing at step {int(kept[2].name)}" in ended.err
    assert_same(everything_of(run_dir), everything_of(light))


def test_all_damaged_starts_from_the_beginning(killed: Path, light: Path, tmp_path: Path) -> None:
    run_dir, kept = copy_of(killed, tmp_path)
    damage_all(run_dir)
    ended = run(resume(run_dir)).ok()
    assert "starting from the beginning" in ended.err
    for path in kept:
        assert f"checkpoint {path} is damaged" in ended.err
    aside = [path.name for path in (run_dir / "checkpoints").glob("*.damaged")]
    assert aside == [f"{kept[0].name}.damaged"]  # the newest, for inspection
    assert_same(everything_of(run_dir), everything_of(light))


def test_damaged_checkpoints_do_not_push_out_new_ones(
    killed: Path, light: Path, tmp_path: Path
) -> None:
    """Started over and killed again below the damaged steps, the run keeps what it has done."""
    run_dir, _ = copy_of(killed, tmp_path)
    damage_all(run_dir)
    paused(resume(run_dir), tmp_path / "pause", at=400).kill()
    whole = [int(p.name) for p in list_checkpoints(run_dir / "checkpoints") if is_whole(p)]
    assert whole[:1] == [384]
    ended = run(resume(run_dir)).ok()
    assert "continuing at step 384" in ended.err
    assert_same(everything_of(run_dir), everything_of(light))


def is_whole(path: Path) -> bool:
    try:
        load_checkpoint(path)
    except CheckpointError:
        return False
    return True


def test_left_overs_of_a_killed_writer_are_harmless(
    killed: Path, light: Path, tmp_path: Path
) -> None:
    run_dir, kept = copy_of(killed, tmp_path)
    for name in (".000000000800.tmp", ".000000009999.tmp", ".000000000768.old.tmp"):
        shutil.copytree(kept[0], run_dir / "checkpoints" / name)
        (run_dir / "checkpoints" / name / "state.json").unlink()
    (run_dir / ".summary.json.77.tmp").write_text("{")
    ended = run(resume(run_dir)).ok()
    assert f"continuing at step {int(kept[0].name)}" in ended.err
    assert_same(everything_of(run_dir), everything_of(light))
    assert sorted(p.name for p in (run_dir / "checkpoints").glob(".*")) == []


def test_a_torn_last_row_is_written_again(killed: Path, light: Path, tmp_path: Path) -> None:
    """Rows after the checkpoint, and half a row, are of a future that did not happen."""
    run_dir, _ = copy_of(killed, tmp_path)
    with (run_dir / "result.jsonl").open("a") as file:
        file.write('{"training_iteration": 99}\n{"training_iter')
    with (run_dir / "progress.csv").open("a") as file:
        file.write("99,99\n99,")
    run(resume(run_dir)).ok()
    assert_same(everything_of(run_dir), everything_of(light))


def test_a_damaged_config_is_refused(killed: Path, tmp_path: Path) -> None:
    run_dir, _ = copy_of(killed, tmp_path)
    truncate(run_dir / "config.json")
    ended = run(resume(run_dir))
    assert ended.code == 2
    assert len(ended.err.strip().splitlines()) == 1
    assert "config.json" in ended.err


def test_damage_on_several_ranks(light3: Path, tmp_path: Path) -> None:
    words = (*LIGHT, "--env", "Kept-v0", "--checkpoint_interval", 0, "--procs", 3)
    run_dir = tmp_path / "run"
    paused(train(run_dir, *words), tmp_path / "pause", at=395, rank=2).kill()
    flip(list_checkpoints(run_dir / "checkpoints")[0] / "envs.safetensors")
    ended = run(resume(run_dir)).ok()
    assert "is damaged" in ended.err
    assert_same(learning_of(run_dir), learning_of(light3))
    assert newest(run_dir).numbers["counters"]["totals"]["env_restarts"] == 0
