"""The folder of checkpoints: which are kept, which is the newest, and what is set aside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exarl.errors import CheckpointError
from exarl.records.checkpoint import (
    Checkpoint,
    find_newest,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    not_finite,
    save_checkpoint,
    set_aside_newer,
    weights_of,
)


def checkpoint(value: float, **numbers: float) -> Checkpoint:
    return Checkpoint({"agent": {"weights": np.full(3, value, np.float32)}}, {**numbers})


def steps(folder: Path) -> list[int]:
    return [int(path.name) for path in list_checkpoints(folder)]


def test_the_newest_are_kept_and_listed_first(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    assert list_checkpoints(folder) == []
    for step in (5, 40, 300, 2000):
        path = save_checkpoint(folder, step, checkpoint(step), keep=3)
        assert int(path.name) == step
    assert steps(folder) == [2000, 300, 40]
    assert not list(folder.glob(".*"))


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    arrays = {"weights": np.arange(3, dtype=np.float32), "odd": np.arange(6).reshape(2, 3).T}
    saved = Checkpoint({"agent": arrays, "envs": {"at": np.array(7)}}, {"steps": 5, "name": "x"})
    found = load_checkpoint(save_checkpoint(tmp_path, 1, saved, keep=1))
    assert found.numbers == saved.numbers
    assert found.arrays.keys() == saved.arrays.keys()
    for stem, group in saved.arrays.items():
        assert found.arrays[stem].keys() == group.keys()
        for name, array in group.items():
            np.testing.assert_array_equal(found.arrays[stem][name], array)


def test_the_same_step_again_takes_the_place_of_the_old(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 7, checkpoint(1), keep=2)
    save_checkpoint(tmp_path, 7, checkpoint(2), keep=2)
    assert steps(tmp_path) == [7]
    newest = load_newest(tmp_path)
    assert newest is not None
    assert newest.arrays["agent"]["weights"].tolist() == [2, 2, 2]


def test_left_overs_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".000000000003.tmp").mkdir()
    assert steps(tmp_path) == []
    save_checkpoint(tmp_path, 4, checkpoint(1), keep=2)
    assert not list(tmp_path.glob(".*"))


def test_a_folder_whose_run_was_deleted_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        save_checkpoint(tmp_path / "gone" / "checkpoints", 1, checkpoint(1), keep=1)


@pytest.mark.parametrize("damage", ["cut", "flip", "grow", "gone"])
def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path: Path, damage: str) -> None:
    save_checkpoint(tmp_path, 1, checkpoint(1), keep=3)
    path = save_checkpoint(tmp_path, 2, checkpoint(2), keep=3)
    file = next(path.glob("*.safetensors"))
    whole = file.read_bytes()
    damaged = {
        "cut": whole[:-1],
        "flip": whole[:-1] + bytes([whole[-1] ^ 1]),
        "grow": whole + b"\0",
        "gone": None,
    }[damage]
    file.unlink()
    if damaged is not None:
        file.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(path)
    newest = find_newest(tmp_path)
    assert newest is not None
    assert int(newest.name) == 1


def test_one_that_has_diverged_is_passed_over_too(tmp_path: Path) -> None:
    assert find_newest(tmp_path) is None
    assert load_newest(tmp_path) is None
    save_checkpoint(tmp_path, 1, checkpoint(1), keep=3)
    save_checkpoint(tmp_path, 2, checkpoint(np.nan), keep=3)
    newest = find_newest(tmp_path)
    assert newest is not None
    assert int(newest.name) == 1


def test_only_what_learns_must_be_finite() -> None:
    good, bad = np.zeros(2, np.float32), np.array([0, np.inf], np.float32)
    assert (
        not_finite(Checkpoint({"agent": {"weights": good}, "envs": {"weights": bad}}, {})) is None
    )
    assert not_finite(Checkpoint({"agent": {"weights": bad}}, {})) == "weights"
    assert not_finite(Checkpoint({"agent": {"weights": np.zeros(2, int)}}, {})) == "weights"
    with pytest.raises(CheckpointError, match="finite"):
        weights_of(Checkpoint({"agent": {"weights": bad}}, {}))
    with pytest.raises(CheckpointError, match="no weights"):
        weights_of(Checkpoint({"agent": {}}, {}))
    assert weights_of(checkpoint(3.0)).tolist() == [3, 3, 3]


def test_newer_ones_are_set_aside_and_one_of_them_is_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save_checkpoint(tmp_path, step, checkpoint(step), keep=9)
    set_aside_newer(tmp_path, list_checkpoints(tmp_path)[2])
    assert steps(tmp_path) == [2, 1]
    assert [path.name for path in tmp_path.glob("*.damaged")] == ["000000000004.damaged"]
    set_aside_newer(tmp_path, None)
    assert steps(tmp_path) == []
    assert [path.name for path in tmp_path.glob("*.damaged")] == ["000000000004.damaged"]


@pytest.mark.parametrize("weights", [np.array([True]), np.array([np.nan]), np.array([1])])
def test_weights_are_finite_numbers(weights: np.ndarray) -> None:
    good = Checkpoint({"agent": {"weights": np.zeros(3, np.float32)}}, {})
    bad = Checkpoint({"agent": {"weights": weights}}, {})
    assert not_finite(good) is None
    assert not_finite(bad) == "weights"
    assert weights_of(good) is good.arrays["agent"]["weights"]
    for damaged in (bad, Checkpoint({"agent": {}}, {}), Checkpoint({}, {})):
        with pytest.raises(CheckpointError):
            weights_of(damaged)
