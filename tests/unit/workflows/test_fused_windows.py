"""Windows of several steps in the fused program: those of the host, from one block to the next."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support.jobs import assert_same, everything_of, sum_again
from support.learning import adapter_of, make_agent
from support.transitions import assert_alike, expected_rows, listed

from exarl import ExaLearner
from exarl.records.checkpoint import find_newest
from exarl.records.metrics import read_rows

jax = pytest.importorskip("jax")

GAMMA, STEPS, ENVS = 0.5, 4, 3


@pytest.mark.parametrize(("n", "priority_scale"), [(3, 0.0), (6, 0.6)])
def test_the_replay_is_given_every_window_once(n: int, priority_scale: float) -> None:
    from exarl.envs.device import DeviceEnvs
    from exarl.workflows.fused_program import FusedProgram

    env = gymnasium.make("CartPole-v1", max_episode_steps=12)
    adapter = adapter_of(env, limit=12)
    own = {"n_step": n, "gamma": GAMMA, "priority_scale": priority_scale, "replay_capacity": 500}
    agent = make_agent(adapter.spec, batch_size=4, **own)
    program = FusedProgram.of(agent, DeviceEnvs.of(env, adapter), ENVS, STEPS, 5)
    carry = program.start(agent.first_params(0, agent.hyper), np.uint32(1), {})
    iterate = jax.jit(partial(program.iterate, swept={}, updates=1))
    roll = jax.jit(partial(program._roll, program.hyper))
    blocks = []
    for number in range(8):
        _, rolling, _ = jax.random.split(jax.random.wrap_key_data(carry.key), 3)
        made = np.float32(number * STEPS * ENVS)
        blocks.append(roll(carry, made, rolling)[1])
        carry, _ = iterate(carry, made, np.bool_(number > 2))
        filled = max(0, (number + 1) * STEPS - n + 1) * ENVS
        assert int(carry.replay.ring.size) == int(carry.replay.ring.next) == filled
        if priority_scale:
            assert not np.asarray(carry.replay.mass)[filled:].any()
    rows = {name: np.asarray(a)[:filled] for name, a in carry.replay.ring.rows.items()}
    assert_alike(listed(rows), expected_rows(blocks, n, GAMMA))
    assert sum(block.ended.sum() for block in blocks) > 3


WORDS: dict[str, Any] = {
    "argv": [],
    "serial": True,
    "progress": False,
    "workflow": "fused",
    "agent": "DQN-v0",
    "env": "CartPole-v1",
    "hidden": [8],
    "block_steps": 10,
    "batch_size": 8,
    "learning_starts": 0,
    "updates_per_step": 0.1,
    "n_envs": 4,
    "seed": 3,
}


def train(run: Path, blocks: int, n: int) -> None:
    ExaLearner(**WORDS, run_dir=str(run), n_step=n, total_steps=40 * blocks).run()


def test_windows_longer_than_blocks_are_trained_and_go_on_after_a_resume(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, 4, 12)
    made = [row["updates_total"] for row in read_rows(whole / "result.jsonl")]
    assert made == [0, 4, 8, 12]  # the first block completes no window
    train(parts, 1, 12)
    train(parts, 4, 12)
    assert_same(everything_of(parts), everything_of(whole))


def test_a_checkpoint_of_before_there_were_leads_is_continued(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    run = tmp_path / "run"
    train(run, 2, 3)
    newest = find_newest(run / "checkpoints")
    assert newest is not None
    arrays = load_file(newest / "envs.safetensors")
    former = {name: array for name, array in arrays.items() if "/lead/" not in name}
    assert len(arrays) - len(former) == 7
    save_file(former, newest / "envs.safetensors")
    sum_again(newest)
    train(run, 4, 3)
    assert list(read_rows(run / "result.jsonl"))[-1]["updates_total"] == 16
