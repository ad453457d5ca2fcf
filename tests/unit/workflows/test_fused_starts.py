"""When the fused program begins to learn, and with which importance weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl import ExaLearner
from exarl.records.checkpoint import find_newest, load_checkpoint
from exarl.records.metrics import read_rows

pytest.importorskip("jax")

STEPS = 40  # per block: 10 of each of 4 environments
WORDS = {
    "agent": "DQN-v0",
    "env": "CartPole-v1",
    "hidden": [8],
    "block_steps": 10,
    "batch_size": 8,
    "updates_per_step": 0.1,
    "seed": 3,
}


def train(run: Path, workflow: str, blocks: int, **words: Any) -> None:
    width = {"n_envs": 4} if workflow == "fused" else {"envs_per_actor": 4}
    given = {
        "argv": [],
        "serial": True,
        "progress": False,
        "workflow": workflow,
        "run_dir": str(run),
    }
    ExaLearner(**given, **WORDS, **width, total_steps=blocks * STEPS, **words).run()


@pytest.mark.parametrize("workflow", ["sync", "fused"])
@pytest.mark.parametrize(("starts", "learning"), [(STEPS, 3), (STEPS + 1, 2)])
def test_the_block_that_completes_learning_starts_is_learnt_from(
    tmp_path: Path, workflow: str, starts: int, learning: int
) -> None:
    train(tmp_path / "run", workflow, blocks=3, learning_starts=starts)
    rows = list(read_rows(tmp_path / "run" / "result.jsonl"))
    assert len(rows) == 3
    assert sum(row.get("loss") is not None for row in rows) == learning
    assert rows[-1]["updates_total"] == learning * STEPS * 0.1


@pytest.mark.slow
def test_the_exponent_of_importance_weights_ends_at_one(tmp_path: Path) -> None:
    """Where it is reached before the first update, it is 1 as if it had been so from the start."""
    weights = []
    for name, beta, updates in (("always", 1.0, 10**9), ("at_once", 0.3, 1)):
        chosen = {"priority_scale": 0.8, "priority_beta": beta, "priority_updates": updates}
        train(tmp_path / name, "fused", blocks=3, learning_starts=STEPS, **chosen)
        newest = find_newest(tmp_path / name / "checkpoints")
        assert newest is not None
        weights.append(load_checkpoint(newest).arrays["agent"]["weights"])
    np.testing.assert_allclose(*weights, rtol=1e-6, atol=1e-7)
