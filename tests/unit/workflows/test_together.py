"""Several blocks that wait are trained in one call: as many as pay, each once, counted one by one."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.learning import Scripted, discrete_spec, random_block

from exarl.comm.codec import BlockCodec
from exarl.comm.pacer import Pacer
from exarl.config import LearnerConfig
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.metrics import read_rows
from exarl.records.signals import StopSignals
from exarl.records.trace import Tracer
from exarl.training.actors import Tally
from exarl.training.counters import Counters
from exarl.training.loop import LearningLoop
from exarl.training.snapshot import Snapshot
from exarl.types import Block
from exarl.workflows import together
from exarl.workflows.lagging_loops import learn
from exarl.workflows.together import Gatherer

SPEC = discrete_spec()
STEPS = 5


class Joining(Scripted):
    """Takes blocks together."""

    def joins_blocks(self) -> bool:
        return True


class Queue:
    """A source whose blocks have all come."""

    def __init__(self, blocks: list[Block]) -> None:
        self.waiting = deque(blocks)
        self.published: list[tuple[int, int]] = []

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        self.published.append((version, trained))

    def take(self, version: int) -> Block | None:
        return self.waiting.popleft() if self.waiting else None

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        return Snapshot({}, list(self.waiting)), Tally()


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blocks be trained together from the second call on, however long they take."""
    monkeypatch.setattr(together, "FIRST_ALONE", 0)
    monkeypatch.setattr(together, "MOST_S", 1e9)


def blocks_of(count: int) -> list[Block]:
    return [random_block(SPEC, seed, steps=STEPS, width=1) for seed in range(count)]


def play(path: Path, blocks: list[Block], most: int, **limits: Any) -> tuple[Any, Queue, list[Any]]:
    """The loop after it has trained on blocks that had all come, their source, and its rows."""
    run = RunDirectory(path)
    run.create({}, {})
    clock, source = Clock(Tracer(0, "learner", enabled=False)), Queue(blocks)
    shown = SimpleNamespace(update=lambda row: None, note=lambda text: None)
    settings = LearnerConfig(checkpoint_interval=1e9, **limits)
    loop = LearningLoop(Joining(SPEC), settings, run, shown, clock, StopSignals())
    learner: Any = SimpleNamespace(
        loop=loop, config=settings, clock=clock, team=None, backlog=[], codec=BlockCodec(SPEC, {})
    )
    outcome = learn(learner, source, False, most)  # type: ignore[arg-type]
    loop.close(outcome.tally)
    return loop, source, read_rows(run.result)


def test_every_block_is_trained_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    blocks = blocks_of(20)
    loop, source, rows = play(tmp_path, blocks, 8, total_steps=20 * STEPS)
    widths = [block.rewards.shape[1] for block in loop.agent.trained]
    assert widths == [1, 1, 8, 8, 2], "the first two: nothing is known of their time"
    given = np.concatenate([block.rewards for block in loop.agent.trained], 1)
    np.testing.assert_array_equal(given, np.concatenate([block.rewards for block in blocks], 1))
    assert (loop.counters.blocks, loop.counters.steps) == (20, 20 * STEPS)
    assert loop.counters.episodes == sum(len(block.episode_returns) for block in blocks)
    assert loop.counters.version == loop.counters.iteration == len(rows) == 5
    assert [row["timesteps_total"] for row in rows] == [5, 10, 50, 90, 100]
    assert [row["policy_lag_max"] for row in rows] == [0, 1, 2, 3, 4]
    # rma counts by these numbers how many blocks are under way; those of the end go to no actor.
    assert source.published == [(0, 0), (1, 1), (2, 1), (3, 8)]


def test_one_by_one_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    loop, _, rows = play(tmp_path, blocks_of(6), 1, total_steps=6 * STEPS)
    assert len(loop.agent.trained) == len(rows) == 6


def test_no_block_is_trained_beyond_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is left, as without training together."""
    at_once(monkeypatch)
    loop, source, _ = play(tmp_path / "steps", blocks_of(20), 8, total_steps=6 * STEPS - 1)
    assert loop.counters.steps == 6 * STEPS
    assert len(source.waiting) + loop.counters.blocks == 20
    alone, *_ = play(tmp_path / "one", blocks_of(40), 1, n_episodes=12)
    joined, *_ = play(tmp_path / "many", blocks_of(40), 8, n_episodes=12)
    assert joined.counters.blocks == alone.counters.blocks
    assert joined.counters.episodes == alone.counters.episodes


def test_blocks_of_another_form_are_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    long = [random_block(SPEC, seed, steps=2 * STEPS, width=1) for seed in range(2)]
    blocks = [*blocks_of(4), *long, *blocks_of(2)]
    loop, *_ = play(tmp_path, blocks, 8, total_steps=50)
    assert [block.rewards.shape for block in loop.agent.trained] == [
        *[(STEPS, 1)] * 2,
        *[(STEPS, 2), (2 * STEPS, 2), (STEPS, 2)],
    ]


def clocked(seconds: list[float], *, waited: int, most: int = 8, joins: bool = True) -> Gatherer:
    """One that has seen blocks which took so long, ``waited`` of which had to wait."""
    times = iter(np.cumsum([0.0, *seconds]))
    agent = SimpleNamespace(joins_blocks=lambda: joins)
    loop: Any = SimpleNamespace(agent=agent, counters=Counters())
    found = Gatherer(loop, LearnerConfig(), most, lambda: float(next(times)))
    for _ in range(waited):
        found.waited()
    for _ in range(len(seconds) + 1):
        found.trained(1)
    return found


@pytest.mark.parametrize(
    ("seconds", "most"),
    [
        ([1e-3] * 9, 8),
        ([together.MOST_S / 3.5] * 9, 3),
        ([together.MOST_S * 2] * 9, 1),
        ([5.0, 1e-3, 1e-3], 8),  # one that compiled
        ([1e-3, *[1.0] * 9], 1),  # long ago
    ],
)
def test_as_many_as_are_trained_in_the_time_allowed(seconds: list[float], most: int) -> None:
    assert clocked(seconds, waited=together.FIRST_ALONE).most == most


def test_not_before_enough_blocks_had_to_wait_and_not_where_the_agent_cannot() -> None:
    assert clocked([1e-3] * 9, waited=together.FIRST_ALONE - 1).most == 1
    assert clocked([1e-3] * 9, waited=together.FIRST_ALONE, joins=False).most == 1
    assert clocked([1e-3] * 9, waited=together.FIRST_ALONE, most=1).most == 1


@pytest.mark.parametrize("max_lag", [0, 1, 3, 10])
def test_the_lag_stays_bounded(max_lag: int) -> None:
    """Blocks that are trained at once are all of the same version, so later ones wait for fewer."""
    chance, pacer = random.Random(0), Pacer(range(6), max_lag=max_lag, ahead=2)
    acting: dict[int, deque[int]] = {actor: deque() for actor in range(6)}
    here: dict[int, deque[int]] = {actor: deque() for actor in range(6)}
    lags, counts = [], []
    for version in range(300):
        for actor in pacer.grants(version):
            acting[actor].append(version)
        count = 0
        while not count:
            for actor in chance.sample(range(6), 6):
                while acting[actor] and chance.random() < 0.6:
                    here[actor].append(acting[actor].popleft())
                    pacer.arrived(actor)
            while count < 8 and (actor := pacer.next(version)) is not None:
                pacer.trained(actor)
                lags.append(version - here[actor].popleft())
                count += 1
        counts.append(count)
    assert max(lags) <= max_lag
    assert max(counts) > 1 or max_lag == 0
