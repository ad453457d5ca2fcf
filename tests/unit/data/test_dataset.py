"""Datasets: what is written is read again, by Minari too, and what does not fit is one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl.data import Dataset, RecordedEpisode, check, checksum, read, write
from exarl.errors import ConfigError
from exarl.types import ArraySpec, EnvSpec

BOX = {"type": "Box", "dtype": "float32", "shape": [3], "low": "-inf", "high": "inf"}
ACTION = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1.0, 0.0], "high": [1.0, 4.0]}
SPEC = EnvSpec(
    "Some-v0",
    ArraySpec((3,), "float32"),
    ArraySpec((2,), "float32"),
    None,
    (-1.0, 0.0),
    (1.0, 4.0),
    spaces={"observation": BOX, "action": ACTION},
)


def episode(steps: int, rng: np.random.Generator, terminated: bool = True) -> RecordedEpisode:
    ends = np.zeros((2, steps), bool)
    ends[0 if terminated else 1, -1] = True
    actions = rng.uniform([-1, 0], [1, 4], (steps, 2)).astype(np.float32)
    seen = rng.normal(size=(steps + 1, 3)).astype(np.float32)
    return RecordedEpisode(seen, actions, rng.normal(size=steps), *ends)


def some(*lengths: int) -> Dataset:
    rng = np.random.default_rng(0)
    episodes = [episode(n, rng, bool(n % 2)) for n in lengths]
    return Dataset(Path("here"), "made", lengths, episodes.__getitem__, BOX, ACTION, "Some-v0")


def assert_same(found: Dataset, expected: Dataset) -> None:
    assert found.lengths == expected.lengths
    for one, other in zip(found, expected, strict=True):
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


@pytest.mark.parametrize("name", ["d.npz", "d.csv", "d"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    written = some(5, 1, 4)
    write(tmp_path / name, written)
    found = read(tmp_path / name)
    assert_same(found, written)
    check(found, SPEC)
    if name != "d.csv":
        assert found.env_id == "Some-v0" and found.action is not None


def test_parts_of_observations_survive(tmp_path: Path) -> None:
    plain = some(4)[0]
    seen = {"a": np.arange(5.0), "b": (np.ones((5, 2)), np.arange(5))}
    whole = replace(plain, observations=seen)
    write(tmp_path / "d", Dataset(tmp_path, "made", (4,), lambda _: whole))
    found: Any = read(tmp_path / "d")[0].observations
    np.testing.assert_array_equal(found["b"][1], np.arange(5))
    np.testing.assert_array_equal(found["a"], seen["a"])


def test_minari_reads_it(tmp_path: Path) -> None:
    minari = pytest.importorskip("minari")
    written = some(5, 3)
    write(tmp_path / "d", written)
    dataset = minari.MinariDataset(tmp_path / "d")
    assert dataset.total_episodes == 2 and dataset.total_steps == 8
    assert dataset.observation_space.shape == (3,)
    np.testing.assert_array_equal(dataset.action_space.high, np.float32([1, 4]))
    for one, other in zip(dataset.iterate_episodes(), written, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.terminations, other.terminations)
        assert repr(one)


def change(dataset: Dataset, **arrays: Any) -> Dataset:
    changed = replace(dataset[0], **arrays)
    return replace(dataset, lengths=dataset.lengths[:1], load=lambda _: changed)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        (
            {"observations": np.zeros((5, 2))},
            "an observation has 2 numbers, those of Some-v0 have 3",
        ),
        ({"actions": np.zeros((4, 1))}, "an action has 1 numbers, those of Some-v0 have 2"),
        ({"actions": np.full((4, 2), 2.0)}, r"an action of 2, outside of \[-1, 1\] of Some-v0"),
        ({"actions": np.zeros((3, 2))}, "actions has 3 rows, not 4"),
        ({"observations": np.full((5, 3), np.nan)}, "observations has a number that is not finite"),
        ({"terminations": np.ones(4, bool)}, "it ends before its last step"),
        ({"rewards": np.array([np.inf] * 4)}, "a reward is not finite"),
    ],
)
def test_what_does_not_fit_is_one_line(arrays: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        check(change(some(4), **arrays), SPEC)
    assert "\n" not in str(caught.value)


def test_nothing_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.npz").write_bytes(b"no zip")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "metadata.json").write_text(json.dumps({"data_format": "arrow"}))
    for name in ("nowhere", "empty", "x.npz", "x.csv", "m"):
        with pytest.raises(ConfigError) as caught:
            read(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_changed_file_has_another_checksum(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", some(4))
    before = checksum(read(tmp_path / "a.npz"))
    assert checksum(read(tmp_path / "a.npz")) == before
    write(tmp_path / "a.npz", some(5))
    assert checksum(read(tmp_path / "a.npz")) != before


def test_a_dataset_is_not_written_over(tmp_path: Path) -> None:
    write(tmp_path / "d", some(4))
    with pytest.raises(ConfigError, match="exists already"):
        write(tmp_path / "d", some(4))
