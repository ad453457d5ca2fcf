"""When the learning loop says that it compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.learning import discrete_spec, make_agent, random_block

from exarl.config import LearnerConfig
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.signals import StopSignals
from exarl.records.trace import Tracer
from exarl.training.loop import LearningLoop

SPEC = discrete_spec()


class Shown:
    """A progress display that remembers what it said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def update(self, row: Any) -> None:
        pass

    def note(self, text: str) -> None:
        self.said.append(text)

    def busy(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("id", "parameters", "first"),
    [
        ("DQN-v0", {"learning_starts": 0, "batch_size": 4}, 0),
        ("DQN-v0", {"learning_starts": 50, "batch_size": 4}, 3),
        ("PPO-v0", {"minibatches": 2, "epochs": 1}, 0),
    ],
)
def test_it_is_said_once_and_when_it_happens(
    tmp_path: Path, id: str, parameters: dict[str, Any], first: int
) -> None:
    agent = make_agent(SPEC, id=id, learner=True, **parameters)
    run, shown = RunDirectory(tmp_path), Shown()
    run.create({}, {})
    clock = Clock(Tracer(0, "learner", enabled=False))
    config = LearnerConfig(total_steps=10**6)
    loop = LearningLoop(agent, config, run, shown, clock, StopSignals())
    said = []
    for number in range(first + 3):
        block = random_block(SPEC, number)
        recorded = {name: spec.zeros(8, 2) for name, spec in agent.recorded.items()}
        block.__dict__["recorded"] = recorded
        loop.train(block)
        said.append(len(shown.said))
        assert ("compile" in clock.seconds) == (number >= first)
    assert said == [0] * first + [3] * 3
    assert shown.said[:2] == ["compiling the first update ...", ""]
    assert shown.said[2].startswith("compiled the first update in ")
    compiling = clock.seconds["compile"]
    loop.train(block)
    assert clock.seconds["compile"] == compiling
    assert loop.close()["time_split"]["learner"]["compile"] > 0
