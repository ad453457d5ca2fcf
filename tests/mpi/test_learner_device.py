"""The learner compiles once and has the device; actors stay off it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.jobs import run, train

DEVICES = "--xla_force_host_platform_device_count=4"

LOSSES = """if True:
    import dataclasses, json, sys
    import jax, numpy as np
    from support.learning import continuous_spec, discrete_spec, make_agent, random_block

    def losses(devices, id, **parameters):
        spec = continuous_spec() if id == "SAC-v0" else discrete_spec()
        common = {"learner": True, "batch_size": 16, "learning_starts": 0, "updates_per_step": 0.25}
        agent = make_agent(spec, id=id, learner_devices=devices, **common, **parameters)
        found = []
        for block in [random_block(spec, seed) for seed in range(3)]:
            shapes = {name: (*block.rewards.shape, *s.shape) for name, s in agent.recorded.items()}
            recorded = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
            found.append(agent.train(dataclasses.replace(block, recorded=recorded)))
        placed = {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(agent.train_state)}
        assert placed == {devices}, placed
        return [float(value) for made in found for value in made.values()]

    print(json.dumps([losses(devices, **json.loads(sys.argv[1])) for devices in (1, 4)]))"""


def test_an_asynchronous_learner_compiles_only_at_its_first_updates(
    run_body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With evaluations and checkpoints on the way."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    learner, actor = run_body("compilations", 2)
    updating = [compiled for updates, compiled in learner["counts"] if updates]
    assert len(updating) > 10
    assert updating[0] > 0, "the listener heard nothing"
    assert updating == [updating[0]] * len(updating)
    assert learner["platforms"] is None
    assert not actor["jax"]
    assert actor["platforms"] == "cpu"


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [
        {"id": "DQN-v0", "priority_scale": 0.6, "optimizer": "sgd", "learning_rate": 0.1},
        {"id": "DQN-v0", "units": 4},
        {"id": "SAC-v0"},
    ],
)
def test_a_batch_divided_among_devices_is_learned_as_on_one(agent: dict[str, Any]) -> None:
    path = str(Path(__file__).parents[1])
    environ = {**os.environ, "XLA_FLAGS": DEVICES, "PYTHONPATH": path}
    command = [sys.executable, "-c", LOSSES, json.dumps(agent)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, four = json.loads(done.stdout)
    assert len(one) >= 6
    assert four == pytest.approx(one, rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_learners_of_several_devices_stay_alike(tmp_path: Path) -> None:
    words = ("--workflow", "async", "--learner_procs", 2, "--procs", 4, "--check_learners", 1)
    small = ("--total_steps", 1500, "--hidden", "[16]", "--learner_devices", 2)
    command = train(tmp_path / "run", *words, *small)
    run(command, environ={"XLA_FLAGS": DEVICES}).ok()


@pytest.mark.slow
def test_more_devices_than_there_are_end_the_run_with_one_line(tmp_path: Path) -> None:
    ended = run(train(tmp_path / "run", "--learner_devices", 64, "--total_steps", 100))
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == "exarl: learner_devices=64, but JAX sees 1"
