"""Runs that learn from prior data: cloned at first, or of nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exarl
from exarl.errors import CheckpointError, ConfigError
from exarl.records.checkpoint import load_newest
from exarl.records.directory import RunDirectory, read_json

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {
    "agent": "DQN-v0",
    "env": "CartPole-v1",
    "hidden": (8,),
    "batch_size": 8,
    "learning_rate_fraction": 0,  # else the step size would follow total_steps, which a resume changes
    "progress": False,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "run"
    quiet = {**SMALL, "learning_starts": 10**6}
    exarl.train(run_dir=str(folder), total_steps=320, record=True, **quiet)
    return folder


def weights(run: Path) -> np.ndarray:
    found = load_newest(RunDirectory(run).checkpoints)
    assert found is not None
    return found.arrays["agent"]["weights"]


def test_a_run_of_prior_data_alone_evaluates_keeps_and_goes_on_exactly(
    data: Path, tmp_path: Path
) -> None:
    given = {**SMALL, "total_steps": 0, "prior_data": [str(data)], "clone": 100}
    evaluated = {"eval_interval": 100, "eval_episodes": 1}
    exarl.train(run_dir=str(tmp_path / "whole"), updates=300, **given, **evaluated)
    exarl.train(run_dir=str(tmp_path / "part"), updates=200, **given, **evaluated)
    exarl.resume(tmp_path / "part", updates=300, progress=False)
    np.testing.assert_array_equal(weights(tmp_path / "whole"), weights(tmp_path / "part"))
    summary = read_json(tmp_path / "whole" / "summary.json")
    assert (summary["reason"], summary["timesteps_total"], summary["updates_total"]) == (
        "updates",
        0,
        300,
    )
    assert summary["best_evaluation"] is not None
    rows = (tmp_path / "whole" / "progress.csv").read_text().splitlines()
    column = rows[0].split(",").index("clone_loss")
    assert float(rows[1].split(",")[column]) > 0
    with pytest.raises(ConfigError, match="total_steps"):
        exarl.resume(tmp_path / "part", total_steps=64, progress=False)
    path = data / "data" / "metadata.json"
    before = path.read_text()
    path.write_text(before + " ")
    with pytest.raises(CheckpointError, match="has changed since the checkpoint"):
        exarl.resume(tmp_path / "part", updates=400, progress=False)
    path.write_text(before)


def test_a_run_with_prior_data_goes_on_exactly(data: Path, tmp_path: Path) -> None:
    given = {**SMALL, "prior_data": [str(data)], "clone": 100, "learning_starts": 32}
    exarl.train(run_dir=str(tmp_path / "whole"), total_steps=128, **given)
    exarl.train(run_dir=str(tmp_path / "part"), total_steps=64, **given)
    exarl.resume(tmp_path / "part", total_steps=128, progress=False)
    np.testing.assert_array_equal(weights(tmp_path / "whole"), weights(tmp_path / "part"))
