"""A run begins with another one's policy in ``fused``, and with several learners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import run, train, under_mpi

import exarl
from exarl.errors import ConfigError
from exarl.records.checkpoint import load_newest

SMALL: dict[str, Any] = {"agent": "A2C-v0", "env": "CartPole-v1", "hidden": [8], "progress": False,
                         "envs_per_actor": 1, "block_steps": 16, "total_steps": 64}  # fmt: skip


def kept(run: Path, name: str = "start") -> dict[str, np.ndarray]:
    found = load_newest(run / name)
    assert found is not None
    return found.arrays["agent"]


@pytest.mark.slow
def test_fused_begins_with_the_policy_of_another_workflow(tmp_path: Path) -> None:
    words = {**SMALL, "env": "CartPole-v1", "normalize_observations": True}
    exarl.train(run_dir=str(tmp_path / "old"), **words)
    parts = ["policy", "critics", "normalizers", "optimizer"]
    fused = {**words, "workflow": "fused", "n_envs": 4, "learning_rate": 1e-12, "seed": 9}
    for number, (source, workflow) in enumerate([("old", fused), ("0", {**words, "seed": 7})]):
        run = tmp_path / str(number)
        exarl.train(
            run_dir=str(run), start_from=str(tmp_path / source), start_parts=parts, **workflow
        )
        there, here = kept(tmp_path / source, "checkpoints"), kept(run, "checkpoints")
        count = float(there["seen/count"])
        assert float(here["seen/count"]) == pytest.approx(count + 64)
        if number == 0:
            names = [n for n in there if n.startswith("params/")]
            assert names
            for name in names:
                np.testing.assert_allclose(here[name], there[name], atol=1e-6)
    with pytest.raises(ConfigError, match="start_parts cannot have replay"):
        exarl.train(run_dir=str(tmp_path / "x"), start_from=str(tmp_path / "old"),
                    start_parts=["replay"], **fused)  # fmt: skip


@pytest.mark.slow
def test_several_learners_begin_alike(tmp_path: Path) -> None:
    old, folder = tmp_path / "old", tmp_path / "new"
    exarl.train(run_dir=str(old), **SMALL)
    words = ["--agent", "A2C-v0", "--env", "CartPole-v1", "--hidden", "[8]", "--total_steps", "256",
             "--workflow", "async", "--learner_procs", "2", "--check_learners", "1",
             "--start_from", str(old), "--start_parts", "policy,critics,optimizer"]  # fmt: skip
    run(under_mpi(4, train(folder, *words))).ok()  # a drift of the learners would end it
    assert json.loads((folder / "manifest.json").read_text())["start"]["steps"] == 64
