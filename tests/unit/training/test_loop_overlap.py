"""A device trains one block while the host prepares the next; nothing waits that need not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from support.learning import Scripted, discrete_spec, make_agent, random_block

from exarl.config import LearnerConfig
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.metrics import read_rows
from exarl.records.signals import StopSignals
from exarl.records.trace import Tracer
from exarl.training.actors import Tally
from exarl.training.loop import LearningLoop
from exarl.training.snapshot import Snapshot
from exarl.types import Block
from exarl.workflows.lagging_loops import LaggingConfig, learn

SPEC = discrete_spec()


class Result:
    """A number that a device computes; reading it waits for it, and is noted."""

    def __init__(self, value: float, name: str, log: list[str]) -> None:
        self._value, self._name, self._log = value, name, log

    def __float__(self) -> float:
        self._log.append(f"read {self._name}")
        return float(self._value)


class Remote(Scripted):
    """Learns on a device that takes its time."""

    def __init__(self, log: list[str]) -> None:
        super().__init__(SPEC)
        self._log = log

    def train(self, block: Block) -> dict[str, Any]:
        super().train(block)
        number = len(self.trained)
        self._log.append(f"train {number}")
        return {"loss": Result(number, f"loss {number}", self._log), "updates": 1}

    def weights_later(self) -> Callable[[], np.ndarray]:
        number = len(self.trained)

        def weights() -> np.ndarray:
            self._log.append(f"read weights {number}")
            return np.float32([number])

        return weights


class Queue:
    """A source of N blocks, which then runs dry and stops the loop."""

    def __init__(self, blocks: int, log: list[str]) -> None:
        self._left, self._log = blocks, log

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        assert weights().tolist() == [version]
        self._log.append(f"publish {version}")

    def take(self, version: int) -> Block | None:
        if not self._left:
            return None
        self._left -= 1
        return random_block(SPEC, 0, steps=5, p_end=0)

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        return Snapshot({}, []), Tally()


def play(path: Path, blocks: int, config: LaggingConfig) -> tuple[list[str], list[Any]]:
    """What the learner did, in order, and the rows it left."""
    log: list[str] = []
    run = RunDirectory(path)
    run.create({}, {})
    clock = Clock(Tracer(0, "learner", enabled=False))
    shown = SimpleNamespace(update=lambda row: None, note=lambda text: None)
    settings = LearnerConfig(total_steps=10 * blocks, checkpoint_interval=1e9)
    loop = LearningLoop(Remote(log), settings, run, shown, clock, StopSignals())
    learner: Any = SimpleNamespace(
        loop=loop,
        config=settings,
        clock=clock,
        team=None,
        backlog=[],
        codec=SimpleNamespace(pack=lambda _: {}),
    )
    learn(learner, Queue(blocks, log), config.bounded)  # type: ignore[arg-type]
    loop.close()
    return log, read_rows(run.result)


def test_the_next_block_is_under_way_before_the_last_is_waited_for(tmp_path: Path) -> None:
    log, rows = play(tmp_path, 3, LaggingConfig())
    assert log == [
        *("read weights 0", "publish 0"),
        "train 1",
        *("train 2", "read loss 1", "read weights 1", "publish 1"),
        *("train 3", "read loss 2", "read loss 3"),  # the run is over: no weights are needed
    ]
    assert [row["loss"] for row in rows] == [1, 2, 3]
    assert [row["timesteps_total"] for row in rows] == [10, 20, 30]


def test_where_the_lag_is_bounded_weights_come_before_the_next_block(tmp_path: Path) -> None:
    log, rows = play(tmp_path, 2, LaggingConfig(max_policy_lag=0))
    order = [line for line in log if "loss" not in line and "read" not in line]
    assert order == ["publish 0", "train 1", "publish 1", "train 2"]
    assert [row["loss"] for row in rows] == [1, 2]


@pytest.mark.parametrize("parameters", [{}, {"priority_scale": 0.6}, {"replay_device": "device"}])
def test_training_returns_what_may_still_be_computed(parameters: dict[str, Any]) -> None:
    """Later weights are those of their moment, whatever has been trained since."""
    quick = {"learning_starts": 0, "batch_size": 8, "updates_per_step": 0.25}
    agent = make_agent(SPEC, learner=True, **quick, **parameters)
    kept = []
    for seed in range(3):
        metrics = agent.train(random_block(SPEC, seed))
        assert isinstance(metrics["loss"], jax.Array)
        kept.append((agent.weights_later(), agent.get_weights()))
    for later, weights in kept:
        np.testing.assert_array_equal(later(), weights)
    assert len({weights.tobytes() for _, weights in kept}) == 3
    state = agent.train_state
    plain = agent._layout.pack(agent._acting(state.params, state.target))
    np.testing.assert_array_equal(kept[-1][1], plain)
