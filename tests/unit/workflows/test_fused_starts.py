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
    chosen = {**WORDS, **words}
    if chosen["agent"] != "DQN-v0":
        chosen = {n: v for n, v in chosen.items() if n not in ("batch_size", "updates_per_step")}
    ExaLearner(**given, **chosen, **width, total_steps=blocks * STEPS).run()


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


@pytest.mark.parametrize("workflow", ["sync", "fused"])
@pytest.mark.parametrize(
    ("per_step", "expected"), [(0.0375, [0, 2, 3, 5, 6]), (0.0125, [0, 1, 1, 2, 2])]
)
def test_what_is_left_over_of_a_block_counts_for_the_next(
    tmp_path: Path, workflow: str, per_step: float, expected: list[int]
) -> None:
    """1.5 updates a block, and 0.5."""
    words = {"learning_starts": STEPS + 1, "updates_per_step": per_step}
    train(tmp_path / "run", workflow, blocks=5, **words)
    rows = list(read_rows(tmp_path / "run" / "result.jsonl"))
    assert [row["updates_total"] for row in rows] == expected
    newest = find_newest(tmp_path / "run" / "checkpoints")
    assert newest is not None
    made = [a for n, a in load_checkpoint(newest).arrays["agent"].items() if n == "updates"]
    assert made == expected[-1:]


@pytest.mark.parametrize("agent", ["A2C-v0", pytest.param("PPO-v0", marks=pytest.mark.slow)])
@pytest.mark.parametrize("normalised", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_normalisation_that_moves_on_is_corrected_by_vtrace(
    tmp_path: Path, agent: str, normalised: bool
) -> None:
    """And nothing else lags."""
    ends = []
    for vtrace in (True, False):
        words = {"agent": agent, "vtrace": vtrace, "normalize_observations": normalised}
        train(tmp_path / str(vtrace), "fused", blocks=2, **words)
        newest = find_newest(tmp_path / str(vtrace) / "checkpoints")
        assert newest is not None
        ends.append(load_checkpoint(newest).arrays["agent"]["weights"])
    assert np.array_equal(*ends) is not normalised


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


def test_total_steps_may_exceed_32_bits() -> None:
    """They did not fit into the program; an accelerator makes so many steps within a minute."""
    from exarl.agents.compiled import jax
    from exarl.envs.device import DeviceEnvs
    from exarl.run.build import build_agent, build_episode
    from exarl.run.configure import configure
    from exarl.workflows.fused_program import FusedProgram

    words = {"agent": "PPO-v0", "env": "CartPole-v1", "total_steps": 2**33}
    configuration = configure(overrides={**words, "epochs": 1, "minibatches": 1})
    env, adapter, _ = build_episode(configuration)
    agent: Any = build_agent(configuration, adapter.spec)
    program = FusedProgram.of(agent, DeviceEnvs.of(env, adapter), 2, 4, 5)

    def iterate(steps: Any) -> Any:
        carry = program.start(agent.first_params(0, agent.hyper), np.uint32(0), {})
        return program.iterate(carry, steps, np.array(True), {}, 1)[0]

    assert jax.eval_shape(iterate, np.float32(2**32)).train.updates.shape == ()
