"""A run with ``record`` keeps every episode; a resumed one as if it had never stopped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exarl
from exarl.data import Dataset, check, read
from exarl.errors import ConfigError
from exarl.records.checkpoint import list_checkpoints
from exarl.records.directory import RunDirectory, read_json
from exarl.types import EnvSpec

# No updates: what is recorded does not depend on learning, and nothing is compiled.
QUIET: dict[str, Any] = {
    "agent": "DQN-v0",
    "env": "CartPole-v1",
    "learning_starts": 10**6,
    "envs_per_actor": 2,
    "progress": False,
    "record": True,
}


def trained(folder: Path, steps: int, **parameters: Any) -> Dataset:
    exarl.train(run_dir=str(folder), total_steps=steps, **{**QUIET, **parameters})
    return read(folder)


def assert_same(one: Dataset, other: Dataset) -> None:
    assert one.lengths == other.lengths
    for a, b in zip(one, other, strict=True):
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)


def test_every_episode_is_kept_and_a_lost_future_is_cut_off(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", 640)
    summary = read_json(tmp_path / "whole" / "summary.json")
    assert len(whole) == summary["episodes_total"] > 10
    check(whole, EnvSpec.from_json(read_json(tmp_path / "whole" / "manifest.json")["spec"]))
    part = trained(tmp_path / "part", 320)
    assert part.lengths == whole.lengths[: len(part)]
    run = RunDirectory(tmp_path / "part")
    shutil.copytree(run.checkpoints, tmp_path / "before")
    exarl.resume(run.path, total_steps=640, progress=False)
    assert_same(read(run.path), whole)
    shutil.rmtree(run.checkpoints)  # as if it had been killed before the second half was stored
    shutil.copytree(tmp_path / "before", run.checkpoints)
    assert len(list_checkpoints(run.checkpoints)) == 1
    exarl.resume(run.path, total_steps=640, progress=False)
    assert_same(read(run.path), whole)


def test_recording_changes_nothing_else(tmp_path: Path) -> None:
    trained(tmp_path / "with", 160)
    exarl.train(run_dir=str(tmp_path / "without"), total_steps=160, **{**QUIET, "record": False})
    with_, without = (
        (tmp_path / name / "result.jsonl").read_text().splitlines() for name in ("with", "without")
    )
    assert len(with_) == len(without)
    assert not (tmp_path / "without" / "data").exists()


def test_actions_are_kept_in_the_units_of_the_environment(tmp_path: Path) -> None:
    data = trained(
        tmp_path / "run", 416, agent="SAC-v0", env="Pendulum-v1", envs_per_actor=1, block_steps=16
    )
    assert data.lengths == (200, 200) and data.action is not None
    assert data[0].actions.shape == (200, 1) and 1 < np.abs(data[0].actions).max() <= 2
    assert data[0].truncations[-1]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"record_limit": "20 apples"}, "record_limit"),
        ({"record": False, "record_limit": "1GB"}, "record_limit needs record"),
        ({"workflow": "fused"}, "workflow 'fused' keeps its steps on the device"),
        ({"clone": 5}, "clone needs prior_data"),
        ({"total_steps": 0}, "total_steps 0 learns from prior_data alone: give it and updates"),
        ({"prior_data": ["/nowhere"]}, "no dataset at /nowhere"),
        ({"agent": "PPO-v0", "prior_data": ["/x"], "learning_starts": None}, "has no replay"),
    ],
)
def test_what_cannot_be_is_one_line_and_writes_nothing(
    tmp_path: Path, parameters: dict[str, Any], told: str
) -> None:
    given = {**QUIET, "total_steps": 64, **parameters}
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(ConfigError, match=told) as caught:
        exarl.train(run_dir=str(tmp_path / "run"), **given)
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_data_of_another_environment_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    trained(tmp_path / "data", 160)
    with pytest.raises(
        ConfigError, match="an observation has 4 numbers, those of Pendulum-v1 have 3"
    ):
        exarl.train(
            agent="SAC-v0",
            env="Pendulum-v1",
            prior_data=[str(tmp_path / "data")],
            run_dir=str(tmp_path / "run"),
            total_steps=64,
            progress=False,
        )
    assert not (tmp_path / "run").exists()
