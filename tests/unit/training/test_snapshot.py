"""What a checkpoint of an asynchronous run has of its actors, also of those that do not answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.learning import Scripted, discrete_spec, random_block

from exarl.comm.codec import BlockCodec
from exarl.comm.messages import LAST, ActorState, Order
from exarl.comm.pacer import Pacer
from exarl.config import LearnerConfig
from exarl.records.checkpoint import list_checkpoints, load_checkpoint
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.signals import StopSignals
from exarl.records.trace import Tracer
from exarl.training import snapshot as module
from exarl.training.actors import Tally
from exarl.training.loop import LearningLoop
from exarl.training.snapshot import SentBlock, Snapshot, SnapshotTracker, states_of
from exarl.types import ACTOR_PHASES, Arrays, Block
from exarl.workflows.block_source import PacedSource
from exarl.workflows.lagging_loops import learn

SPEC = discrete_spec()
CODEC = BlockCodec(SPEC, {})


class Clockwork:
    """A clock that is set by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clockwork:
    found = Clockwork()
    monkeypatch.setattr(module, "time", found)
    return found


class Quiet(PacedSource):
    """Actors whose blocks and answers are put in by hand."""

    def __init__(self, ranks: list[int], tracker: SnapshotTracker) -> None:
        super().__init__(ranks, Pacer(ranks, max_lag=None), tracker)
        self.orders: list[Order] = []

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        pass

    def _receive_blocks(self) -> None:
        pass

    def _receive_answers(self) -> None:
        pass

    def _order_all(self, order: Order) -> None:
        self.orders.append(order)


def state(number: int) -> Arrays:
    return {"3/steps": np.array(number)}


def block(seconds: float = 0.0) -> Block:
    found = random_block(SPEC, 0, steps=5, p_end=0)
    found.seconds[ACTOR_PHASES.index("env")] = seconds
    return found


def test_a_checkpoint_waits_for_a_silent_actor_once(clock: Clockwork) -> None:
    source = Quiet([1, 2], SnapshotTracker(60.0, {2: state(7)}))
    source.ask_states()
    source._answered(1, ActorState(1), {})
    clock.now = 59.0
    assert source.states() is None
    source._arrived(2, late := block())
    clock.now = 61.0
    found = source.states()
    assert found is not None
    assert (found.silent, found.envs) == ([2], state(7)), "the state it had when the run began"
    assert found.pending == [late], "what has come of it is kept"
    source.ask_states()
    source._answered(1, ActorState(2), {})
    assert source.states() is not None, "it is not waited for again"


def test_a_late_answer_is_not_taken_for_the_next_one(clock: Clockwork) -> None:
    source = Quiet([1], SnapshotTracker(60.0))
    source.ask_states()
    clock.now = 61.0
    assert source.states() is not None
    source.ask_states()
    source._answered(1, ActorState(1), state(1))
    found = source.states()
    assert found is not None and (found.silent, found.envs) == ([1], state(1))
    source.ask_states()
    source._answered(1, ActorState(2), state(1))
    source._answered(1, ActorState(3), state(2))
    found = source.states()
    assert found is not None and (found.silent, found.envs) == ([], state(2))


def test_an_older_state_that_the_newest_has_overtaken_is_ignored() -> None:
    tracker = SnapshotTracker(60.0)
    first, second = tracker.begin([1], []), tracker.begin([1], [])
    tracker.answered(1, ActorState(second, sent=2), state(2))
    tracker.answered(1, ActorState(first, sent=1), state(1))
    assert tracker.answers == {1: ActorState(second, sent=2)}
    assert tracker.snapshot().envs == state(2)


def test_the_end_does_not_take_an_overtaken_answer_for_a_goodbye() -> None:
    tracker = SnapshotTracker(60.0)
    source = Quiet([1], tracker)
    source.ask_states()
    tracker.begin_last()
    source._answered(1, ActorState(1), state(1))
    assert not tracker.answers
    source._answered(1, ActorState(LAST), state(2))
    assert tracker.answers == {1: ActorState(LAST, sent=0)}


def test_an_actor_may_take_three_of_its_longest_blocks() -> None:
    tracker = SnapshotTracker(60.0)
    tracker.arrived(SentBlock(1, 1, block(10.0)))
    assert tracker.timeout == 60.0
    tracker.arrived(SentBlock(1, 2, block(100.0)))
    tracker.arrived(SentBlock(1, 3, block(1.0)))
    assert tracker.timeout == 300.0


def test_a_snapshot_has_the_blocks_sent_before_each_state_and_not_trained_when_asked() -> None:
    """Actor 1 sends a block after its state, actor 2 is lost meanwhile: its blocks are kept."""
    tracker = SnapshotTracker(60.0)
    sent = [SentBlock(a, n, block()) for a, n in ((1, 2), (2, 1), (1, 3), (2, 2), (1, 4))]
    tracker.arrived(sent[0])
    number = tracker.begin([1, 2], sent[:1])
    for each in sent[1:3]:
        tracker.arrived(each)
    tracker.answered(1, ActorState(number, sent=3), state(1))
    tracker.answered(2, ActorState(number, sent=1), state(2))
    for each in sent[3:]:
        tracker.arrived(each)
    tracker.remove(2)
    assert tracker.settled() and tracker.under_way
    found = tracker.snapshot()
    assert [id(b) for b in found.pending] == [id(sent[i].block) for i in (0, 2, 1, 3)]
    assert (found.envs, found.silent, tracker.under_way) == (state(1), [], False)


def test_pending_blocks_are_trained_from_the_oldest_weights_on() -> None:
    tracker = SnapshotTracker(60.0)
    acted = [dataclasses.replace(block(), version=version) for version in (5, 3, 4)]
    tracker.begin([], [SentBlock(actor, 1, each) for actor, each in enumerate(acted)])
    assert [each.version for each in tracker.snapshot().pending] == [3, 4, 5]


def test_each_actor_gets_the_states_of_its_own_environments() -> None:
    names = ("1/number", "10/number", "1/env/x", "0/number", "actors_made_1")
    found = states_of({name: np.zeros(1) for name in names}, range(1, 3))
    assert list(found) == ["1/number", "1/env/x"]


class Answering:
    """A source that runs dry; asked, its actors answer at once."""

    def __init__(self, blocks: int) -> None:
        self._left = blocks

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        pass

    def take(self, version: int) -> Block | None:
        self._left -= 1
        return random_block(SPEC, 0, steps=5, p_end=0) if self._left >= 0 else None

    def ask_states(self) -> None:
        pass

    def states(self) -> Snapshot | None:
        return Snapshot({}, [])

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        return Snapshot({}, []), Tally()


def test_the_untrained_rest_of_a_backlog_is_in_every_checkpoint(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.create({}, {})
    quiet = Clock(Tracer(0, "learner", enabled=False))
    shown = SimpleNamespace(update=lambda row: None, note=lambda text: None)
    settings = LearnerConfig(total_steps=50, checkpoint_interval=0, keep_checkpoints=9)
    loop = LearningLoop(Scripted(SPEC), settings, run, shown, quiet, StopSignals())
    backlog = [random_block(SPEC, seed, steps=5, p_end=0) for seed in range(3)]
    learner: Any = SimpleNamespace(
        loop=loop, config=settings, clock=quiet, team=None, backlog=backlog, codec=CODEC
    )
    learn(learner, Answering(2), promptly=False)  # type: ignore[arg-type]
    loop.close()
    found = [load_checkpoint(path) for path in reversed(list_checkpoints(run.checkpoints))]
    left = {c.numbers["counters"]["blocks"]: len(CODEC.unpack(c.arrays["pending"])) for c in found}
    assert left[1] == 2
    assert all(count == max(0, 3 - trained) for trained, count in left.items())
