"""A process of a run is built once: actor and learner."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl.records.directory import RunDirectory
from exarl.records.signals import StopSignals
from exarl.run.build import build_workflow
from exarl.run.checks import plan
from exarl.run.configure import configure
from exarl.run.play import play
from exarl.run.process import build_actor, build_environments, build_process
from exarl.run.task import Peers, ProcessTask, start_clock
from exarl.training.actors import Tally
from exarl.training.process import Actor, Learner, RunOutcome
from exarl.types import ACTOR_PHASES, timed
from exarl.workflows.base import ExaWorkflow

SMALL = {"agent": "Random-v0", "env": "CartPole-v1", "block_steps": 8, "envs_per_actor": 2}


def task_of(path: Path, workflow: ExaWorkflow | None = None, **changes: Any) -> ProcessTask:
    configuration = configure(overrides={**SMALL, "total_steps": 64, **changes})
    layout = plan(configuration, 1)
    role = layout.role(0)
    return ProcessTask(
        configuration,
        layout,
        role,
        workflow or build_workflow(configuration),
        RunDirectory(path / "run"),
        StopSignals(),
        start_clock(configuration.learner, role),
    )


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def actor_of(task: ProcessTask, stack: contextlib.ExitStack, **states: Any) -> Actor:
    environments = build_environments(task, Peers(), stack)
    process = build_process(task, Peers(), environments)
    return build_actor(process, environments, states, fresh=not states)


def test_an_actor_is_whole_when_it_is_built_and_never_changes(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    actor = actor_of(task_of(tmp_path), stack)
    block = actor.rollout.collect(0)
    assert block is not None and block.rewards.shape == (8, 2)
    assert len(actor.envs) == 2 and actor.fresh
    for field in dataclasses.fields(actor):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(actor, field.name, None)


def test_an_actor_goes_on_from_stored_states(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    first = actor_of(task_of(tmp_path), stack)
    first.rollout.collect(0)
    again = actor_of(task_of(tmp_path), stack, **first.rollout.state())
    assert not again.fresh
    expected, found = first.rollout.collect(1), again.rollout.collect(1)
    assert expected is not None and found is not None
    np.testing.assert_array_equal(found.observations, expected.observations)


class Seen(ExaWorkflow):
    """Trains a block by the documented interface, and remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Any] = []

    def ready(self, process: Any) -> None:
        self.given.append(process)

    def learn(self, learner: Learner) -> None:
        self.given.append(learner)
        assert learner.actor is not None
        learner.loop.train(learner.actor.rollout.collect(0))


def test_a_process_alone_is_a_learner_that_acts(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    workflow = Seen()
    ended = play(task_of(tmp_path, workflow), Peers(), stack)
    ready, learner = workflow.given
    assert isinstance(learner, Learner) and isinstance(learner.actor, Actor)
    assert learner.agent is ready.agent is learner.actor.agent
    assert learner.loop.agent is not learner.agent, "acting and learning halves are two agents"
    assert ended.outcome == RunOutcome() and ended.outcome.missing_actors == 0
    assert ended.result is not None and ended.result.summary["blocks"] == {"trained": 1}


def test_a_workflow_may_override_run_alone(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    class Plain(ExaWorkflow):
        def run(self, process: Any) -> RunOutcome:
            return RunOutcome(Tally(produced=3, dropped=1, missing=2))

    ended = play(task_of(tmp_path, Plain()), Peers(), stack)
    assert ended.outcome.missing_actors == 2
    assert ended.result is not None
    blocks = ended.result.summary["blocks"]
    assert blocks == {"trained": 0, "produced": 3, "left": 0, "dropped": 1, "redundant": 0}


def test_a_failure_is_in_the_log_of_the_process(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    class Broken(ExaWorkflow):
        def learn(self, learner: Learner) -> None:
            raise RuntimeError("broken on purpose")

    task = task_of(tmp_path, Broken())
    with pytest.raises(RuntimeError, match="on purpose"):
        play(task, Peers(), stack)
    text = task.run.rank_file("rank", 0, "log").read_text()
    assert "broken on purpose" in text and "Traceback" in text
    assert not task.run.summary.exists(), "without a part, another process writes the summary"


def test_times_are_added_to_a_copy_of_the_block(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    block = actor_of(task_of(tmp_path), stack).rollout.collect(0)
    assert block is not None
    before = block.seconds.copy()
    sent = timed(block, {"wait": 2.0, "send": 3.0})
    np.testing.assert_array_equal(block.seconds, before)
    expected = dict(zip(ACTOR_PHASES, before, strict=True)) | {"wait": 2.0, "send": 3.0}
    assert dict(zip(ACTOR_PHASES, sent.seconds, strict=True)) == expected
    assert sent.observations is block.observations
