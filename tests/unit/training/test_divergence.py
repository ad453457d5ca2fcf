"""What counts as divergence, which checkpoints are good, and that a rollback draws other numbers."""

from __future__ import annotations

import csv
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import summary_of

from exarl import ExaLearner
from exarl.learning.exploration import generator, json_state
from exarl.records.checkpoint import Checkpoint, find_newest, save_checkpoint
from exarl.training.divergence import Watch, with_other_streams

NAN, INF = math.nan, math.inf


def watch(policy: str = "stop", iteration: int = 7) -> Watch:
    return Watch(policy, lambda: (iteration, 100 * iteration), lambda text: None)


def stored(iteration: int = 3, weight: float = 1.0) -> Checkpoint:
    rng = json_state(generator(1, 2))
    counters = {"iteration": iteration, "steps": 100 * iteration, "rollbacks": 0}
    agent = {"weights": np.array([weight], np.float32), "replay/seed": np.array([3, 4], np.uint32)}
    envs = {"0/stream": np.array(12), "0/state": np.array(12.0)}
    return Checkpoint(
        {"agent": agent, "envs": envs, "pending": {}},
        {"counters": counters, "agent": {"rng": rng}},
    )


@pytest.mark.parametrize(
    ("metrics", "diverged"),
    [
        ({"loss": 1.0, "q_mean": NAN}, False),
        ({"loss": NAN}, True),
        ({"loss": -INF}, True),
        ({"critic_loss": 0.1, "policy_loss": NAN}, False),  # TD3 between updates of its policy
        ({"critic_loss": NAN, "policy_loss": NAN}, True),
        ({"critic_loss": INF, "policy_loss": 0.1}, True),
        ({"epsilon": 0.1}, False),
    ],
)
def test_which_losses_are_a_divergence(metrics: dict[str, float], diverged: bool) -> None:
    seen = watch()
    seen.losses(metrics)
    assert (seen.found is not None) is diverged


def test_nobody_acts_with_weights_that_are_not_finite() -> None:
    good, bad = np.ones(3, np.float32), np.array([1, NAN, 1], np.float32)
    for policy, expected in (("stop", good), ("rollback", good), ("warn", bad)):
        seen = watch(policy)
        assert seen.weights(good) is good and seen.found is None
        assert seen.weights(bad) is expected
        assert seen.found is not None and seen.stops is (policy != "warn")


def test_a_checkpoint_of_before_is_good() -> None:
    seen = watch(iteration=7)
    assert seen.good(stored(9))
    seen.notice("loss is nan")
    assert seen.good(stored(6)) and not seen.good(stored(7))
    assert not watch().good(stored(6, weight=NAN))
    warned = watch("warn")
    warned.notice("loss is nan")
    assert warned.good(stored(9)) and not warned.good(stored(9, weight=INF))


def test_a_rollback_changes_the_streams_and_nothing_else() -> None:
    before = stored()
    assert with_other_streams(before, 0) is before
    first, second = with_other_streams(before, 1), with_other_streams(before, 2)
    streams = [c.arrays["envs"]["0/stream"] for c in (before, first, second)]
    assert len({int(s) for s in streams}) == 3
    rngs = [c.numbers["agent"]["rng"]["state"]["state"] for c in (before, first, second)]
    assert len(set(rngs)) == 3
    assert first.arrays["agent"]["replay/seed"].tolist() == [4, 5]
    assert first.arrays["envs"]["0/state"] == 12.0
    assert first.arrays["agent"]["weights"] is before.arrays["agent"]["weights"]
    assert [c.numbers["counters"]["rollbacks"] for c in (before, first, second)] == [0, 1, 2]


def test_a_checkpoint_that_is_not_finite_is_not_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = save_checkpoint(tmp_path, 100, stored(), keep=3)
    save_checkpoint(tmp_path, 200, stored(weight=NAN), keep=3)
    with caplog.at_level(logging.WARNING, "exarl"):
        assert find_newest(tmp_path) == good
    assert "000000000200 has diverged: weights is not finite" in caplog.text


def train(path: Path, **words: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "env": "CartPole-v1",
        "learning_starts": 64,
        "hidden": [4],
        "block_steps": 16,
    }
    settings["layer_norm"] = False  # a normalised network bears much before it diverges
    steps = {"optimizer": "sgd", "learning_rate": 1e25, "max_grad_norm": None, "total_steps": 400}
    words = {**settings, **steps, "checkpoint_interval": 0, "run_dir": str(path), **words}
    ExaLearner(argv=[], serial=True, progress=False, **words).run()
    return summary_of(path)


def test_priorities_that_are_not_finite_are_a_divergence_too(tmp_path: Path) -> None:
    told = train(tmp_path / "run", priority_scale=0.6)
    assert told["reason"] == "divergence"
    assert Path(told["divergence"]["checkpoint"]).name == "000000000048"


@pytest.mark.slow  # compiles two programs
def test_in_one_program_agents_diverge_alone(tmp_path: Path) -> None:
    told = train(tmp_path / "one", workflow="fused", n_envs=1)
    assert told["reason"] == "divergence" and told["timesteps_total"] < 200
    assert (tmp_path / "one" / "checkpoints").is_dir()
    told = train(tmp_path / "some", workflow="fused", n_envs=1, sweep="learning_rate=1e-3,1e25")
    assert told["reason"] == "total_steps" and "divergence" not in told
    with (tmp_path / "some" / "population.csv").open() as file:
        rewards = [float(row["reward_mean"]) for row in csv.DictReader(file)]
    assert math.isfinite(rewards[0]) and math.isnan(rewards[1])
