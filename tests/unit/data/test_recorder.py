"""The recorder joins episodes over blocks, keeps to its limit, and forgets a lost future."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from exarl.agents.prior import episode_block
from exarl.data import read
from exarl.data.recorder import Form, Recorder, RecordLimit
from exarl.errors import ConfigError
from exarl.types import PLACE, Block, concatenate

BOX = {"type": "Box", "dtype": "float32", "shape": [], "low": "-inf", "high": "inf"}
FORM = Form("Some-v0", BOX, BOX, lambda actions: 2 * actions)


def recorder(folder: Path, limit: str | None = None) -> Recorder:
    return Recorder(folder, FORM, RecordLimit.read(limit))


def pieces(env: int, *lengths: int, block: int = 4) -> Iterator[Block]:
    """Blocks of an environment whose episodes have these lengths; 100 n + t in episode n."""
    seen, after, ends, ages = [], [], [], []
    for n, length in enumerate(lengths):
        for t in range(length):
            seen.append(100 * n + t)
            after.append(100 * n + t + 1)
            ends.append(t == length - 1)
            ages.append(t)
    for start in range(0, len(seen) // block * block, block):
        own = slice(start, start + block)
        ended = np.array(ends[own])
        finals = np.float32(after[own])[ended]
        count = int(ended.sum())
        following = seen[start + block] if start + block < len(seen) else after[-1]
        yield Block(
            np.float32([*seen[own], following])[:, None],
            np.float32(seen[own])[:, None],
            np.float32(seen[own])[:, None],
            ended[:, None],
            np.zeros((block, 1), bool),
            finals,
            np.zeros(count),
            np.zeros(count, np.int64),
            {PLACE: np.stack([np.full(block, env), np.array(ages[own])], 1)[:, None]},
        )


def test_episodes_are_joined_over_blocks_of_several_environments(tmp_path: Path) -> None:
    kept = recorder(tmp_path / "data")
    for one, other in zip(pieces(0, 3, 6, 3), pieces(7, 5, 7), strict=True):
        kept.add(concatenate([one, other]))
    kept.flush()
    data = read(tmp_path / "data")
    assert sorted(data.lengths) == [3, 3, 5, 6, 7]
    longest = max(data, key=lambda each: each.steps)
    np.testing.assert_array_equal(longest.observations, 100 + np.arange(8))
    np.testing.assert_array_equal(longest.actions, 2 * (100 + np.arange(7)))  # in its own units
    assert longest.terminations[-1] and not longest.truncations.any()


def test_an_episode_of_which_a_block_is_lost_ends_there_and_its_rest_is_left_out(
    tmp_path: Path,
) -> None:
    kept = recorder(tmp_path / "data")
    for number, block in enumerate(pieces(0, 10, 6)):
        if number != 1:
            kept.add(block)
    kept.flush()
    data = read(tmp_path / "data")
    assert data.lengths == (4, 6)
    assert data[0].truncations[-1] and not data[0].terminations.any()
    np.testing.assert_array_equal(data[0].observations, np.arange(5))


def test_what_came_after_a_checkpoint_is_removed(tmp_path: Path) -> None:
    blocks = list(pieces(0, *[5] * 8))
    whole = recorder(tmp_path / "whole")
    whole._most = 60  # several files
    cut = recorder(tmp_path / "cut")
    cut._most = 60
    for block in blocks[:5]:
        whole.add(block)
        cut.add(block)
    arrays, numbers = cut.state()
    for block in blocks[5:]:
        cut.add(block)
    cut.flush()
    again = recorder(tmp_path / "cut")
    again._most = 60
    again.restore(arrays, numbers)
    assert read(tmp_path / "cut").lengths == (5,) * 4
    for block in blocks[5:]:
        whole.add(block)
        again.add(block)
    whole.flush()
    again.flush()
    one, other = read(tmp_path / "whole"), read(tmp_path / "cut")
    assert one.lengths == other.lengths == (5,) * 8
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.observations, b.observations)


def test_the_oldest_go_beyond_the_limit_and_only_with_a_checkpoint(tmp_path: Path) -> None:
    kept = recorder(tmp_path / "data", "3 episodes")
    kept._most = 100
    for block in pieces(0, *[4] * 9):
        kept.add(block)
    assert kept.episodes == 9
    kept.state()
    kept.drop()
    data = read(tmp_path / "data")
    assert data.lengths == (4,) * 3
    assert [float(each.observations[0]) for each in data] == [600, 700, 800]
    assert kept.episodes < 9
    kept.flush()
    assert all(each.steps for each in data)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("2GB", RecordLimit(bytes=2 * 10**9)),
        ("1.5 kb", RecordLimit(bytes=1500)),
        ("20episodes", RecordLimit(None, 20)),
    ],
)
def test_limits_have_units(text: str, limit: RecordLimit) -> None:
    assert RecordLimit.read(text) == limit


@pytest.mark.parametrize("text", ["20", "GB", "0.5 episodes", "-1MB", "3 apples"])
def test_a_limit_without_a_unit_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match="record_limit"):
        RecordLimit.read(text)


def test_an_episode_block_ends_truncated_unless_it_terminated() -> None:
    flags = np.zeros(3, bool)
    block = episode_block(np.arange(4.0), np.arange(3.0), np.ones(3), flags, flags)
    assert block.truncated[:, 0].tolist() == [False, False, True]
    np.testing.assert_array_equal(block.next_observations()[:, 0], [1, 2, 3])
