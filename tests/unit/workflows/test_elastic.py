"""The elastic learner: whatever becomes of its actors, every block counts once."""

from __future__ import annotations

import random
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exarl.comm.codec import BlockCodec, encode_arrays
from exarl.comm.layout import Layout
from exarl.comm.messages import ActorState, encode
from exarl.config import LearnerConfig
from exarl.errors import EnvironmentFailure
from exarl.records.clock import Clock
from exarl.records.trace import Tracer
from exarl.training.actors import BLOCK, LOST, NOTE, READY, STATE, ActorEvent
from exarl.types import Arrays, ArraySpec, Block, EnvSpec
from exarl.workflows.elastic import ElasticConfig, HiredSource, share_of

SPEC = EnvSpec("Toy-v0", ArraySpec((1,), "float32"), ArraySpec((), "int64"), 2)
CODEC = BlockCodec(SPEC, {})
STEPS = 2


class Actor:
    """What a process would do: answers in the order it is asked."""

    def __init__(self) -> None:
        self.asked: deque[tuple[str, int]] = deque()
        self.sent = self.dropped = 0
        self.stopped = False


class PoolInMemory:
    """Actors that do nothing until ``work`` is called, and die when ``lose`` is."""

    def __init__(self, room: int = 4, store: int = 10**9) -> None:
        self.events: deque[ActorEvent] = deque()
        self.actors: dict[int, Actor] = {}
        self.hired: list[tuple[int, list[str]]] = []
        self.dismissed: list[int] = []
        self._room, self._store = room, store

    def hire(self, actor: int, states: Arrays) -> None:
        self.hired.append((actor, sorted(states)))
        self.actors[actor] = Actor()
        self.actors[actor].asked.append((READY, 0))

    def put(self, weights: bytes) -> Any:
        return weights

    def roll(self, actor: int, weights: Any, version: int) -> None:
        if actor in self.actors:
            self.actors[actor].asked.append((BLOCK, version))

    def ask_state(self, actor: int, snapshot: int) -> None:
        if actor in self.actors:
            self.actors[actor].asked.append((STATE, snapshot))

    def stop(self, actor: int) -> None:
        if actor in self.actors:
            self.actors[actor].stopped = True

    def dismiss(self, actor: int) -> None:
        self.dismissed.append(actor)

    def store(self) -> int:
        return self._store

    def room(self) -> int:
        return self._room

    def work(self, number: int) -> None:
        """Let an actor answer what it was asked first."""
        actor = self.actors[number]
        if not actor.asked:
            return
        kind, argument = actor.asked.popleft()
        payload = b""
        if kind == BLOCK and not actor.stopped:
            actor.sent += 1
            payload = encoded(number * 10_000 + actor.sent, argument, actor.sent)
        elif kind == STATE:
            answer = ActorState(argument, actor.sent, actor.dropped)
            payload = encode(answer, encode_arrays({f"{number}/sent": np.array(actor.sent)}))
        self.events.append(ActorEvent(kind, number, payload))

    def lose(self, number: int) -> None:
        del self.actors[number]
        self.events.append(ActorEvent(LOST, number, error="killed"))


def encoded(stamp: int, version: int, number: int) -> bytes:
    zeros, flags = np.zeros((STEPS, 1)), np.zeros((STEPS, 1), bool)
    block = Block(
        np.full((STEPS + 1, 1, 1), stamp, np.float32),
        zeros.astype(np.int64),
        zeros.astype(np.float32),
        flags,
        flags,
        np.zeros((0, 1), np.float32),
        np.zeros(0),
        np.zeros(0, np.int64),
        version=version,
    )
    return CODEC.encode(block, number=number).tobytes()


def source_of(pool: PoolInMemory, states: Arrays | None = None, **options: Any) -> HiredSource:
    learners, rank = options.pop("learners", 1), options.pop("rank", 0)
    note = options.pop("note", lambda text: None)
    learner: Any = SimpleNamespace(
        actor_pool=pool,
        codec=CODEC,
        config=LearnerConfig(block_steps=STEPS, max_env_failures=3),
        role=SimpleNamespace(rank=rank),
        layout=Layout(learners + 4, learners, 1),
        loop=SimpleNamespace(note=note),
        clock=Clock(Tracer(0, "learner", enabled=False)),
        states=states or {},
    )
    return HiredSource(learner, ElasticConfig(**{"n_actors": 4, **options}))


def stamp_of(block: Block) -> int:
    return int(block.observations[0, 0, 0])


@pytest.mark.parametrize("seed", range(8))
def test_every_block_is_trained_once_whoever_dies(seed: int) -> None:
    rng, pool = random.Random(seed), PoolInMemory()
    source = source_of(pool, blocks_ahead=rng.choice([0, 1, 2]))
    version, trained, lost, restarts = 0, [], 0, 0
    source.publish(lambda: np.zeros(3, np.float32), version, trained=0)
    asked = None
    while len(trained) < 300:
        if rng.random() < 0.03:
            pool.lose(rng.choice(list(pool.actors)))
            lost += 1
        if asked is None and rng.random() < 0.05:
            asked = len(trained)
            source.ask_states()
        pool.work(rng.choice(list(pool.actors)))
        if asked is not None and (found := source.states()) is not None:
            # What a resumed run gets: each actor's state, and just those of its blocks before that
            # state which had not been trained when the snapshot began.
            before = Counter(stamp_of(b) // 10_000 for b in found.pending)
            for name, sent in found.envs.items():
                if name.endswith("/sent"):
                    number = int(name.partition("/")[0])
                    done = sum(stamp // 10_000 == number for stamp in trained[:asked])
                    assert done + before[number] == sent
            asked = None
        if (block := source.take(version)) is not None:
            trained.append(stamp_of(block))
            restarts += block.restarts
            version += 1
            source.publish(lambda: np.zeros(3, np.float32), version, trained=1)
    assert len(set(trained)) == len(trained)
    assert len(pool.hired) == 4 + lost or pool.events  # the last loss may not have been read yet
    assert len({number for number, _ in pool.hired}) == len(pool.hired), "a number was used again"
    assert lost - 3 <= restarts <= lost
    left, tally = finish(pool, source)
    assert tally.produced == len(trained) + len(left) + tally.dropped
    assert not {stamp_of(block) for block in left} & set(trained)


def finish(pool: PoolInMemory, source: HiredSource) -> tuple[list[Block], Any]:
    """Stop while all actors go on answering."""
    read = source._receive_blocks

    def working() -> None:
        for number in list(pool.actors):
            pool.work(number)
        read()

    source._receive_blocks = working  # type: ignore[method-assign]
    last, tally = source.stop(5.0)
    assert not tally.missing
    return last.pending, tally


def test_an_actor_that_joins_late_is_asked_at_once() -> None:
    """No weights come before the first block, and no block before the first actor is ready."""
    pool = PoolInMemory()
    source = source_of(pool)
    source.publish(lambda: np.zeros(1, np.float32), 0, trained=0)
    assert source.take(0) is None
    pool.work(0)  # ready
    assert source.take(0) is None
    pool.work(0)
    block = source.take(0)
    assert block is not None and stamp_of(block) == 1


def test_blocks_that_overtake_each_other_are_trained_in_their_order() -> None:
    """Ray may deliver a small result before a large one that was asked for earlier."""
    pool = PoolInMemory()
    source = source_of(pool, n_actors=1, blocks_ahead=2)
    pool.work(0)  # ready
    source.publish(lambda: np.zeros(1, np.float32), 0, trained=0)
    source.take(0)
    for _ in range(3):
        pool.work(0)
    first, second, third = pool.events
    pool.events = deque([third, second])
    assert source.take(0) is None
    pool.events.append(first)
    found = [source.take(0) for _ in range(3)]
    assert [stamp_of(block) for block in found if block is not None] == [1, 2, 3]


def test_blocks_behind_a_lost_one_are_dropped_and_counted() -> None:
    pool = PoolInMemory()
    source = source_of(pool, n_actors=1, blocks_ahead=1)
    pool.work(0)
    source.publish(lambda: np.zeros(1, np.float32), 0, trained=0)
    source.take(0)
    pool.work(0)
    pool.work(0)
    pool.events.popleft()
    assert source.take(0) is None
    pool.lose(0)
    assert source.take(0) is None
    pool.work(1)
    left, tally = finish(pool, source)
    assert not left and (tally.produced, tally.dropped) == (2, 2)


def test_untrained_blocks_of_a_lost_actor_are_part_of_every_snapshot() -> None:
    pool = PoolInMemory()
    source = source_of(pool, n_actors=1)
    pool.work(0)
    source.publish(lambda: np.zeros(1, np.float32), 0, trained=0)
    source._receive_blocks()
    pool.work(0)
    pool.lose(0)
    source._receive_blocks()
    source.ask_states()
    found = source.states()
    assert found is not None and [stamp_of(block) for block in found.pending] == [1]
    left, _ = finish(pool, source)
    assert [stamp_of(block) for block in left] == [1]


def test_actors_without_a_block_are_not_replaced_for_ever() -> None:
    pool = PoolInMemory()
    source = source_of(pool, n_actors=1)
    for _ in range(3):
        pool.lose(max(pool.actors))
        source.take(0)
    assert pool.dismissed == [0, 1, 2], "one that raised keeps its place"
    pool.lose(max(pool.actors))
    with pytest.raises(EnvironmentFailure, match=r"4 actors in a row were lost.*killed"):
        source.take(0)


def test_a_loss_may_end_the_run() -> None:
    pool = PoolInMemory()
    source = source_of(pool, ignore_worker_failures=False)
    pool.lose(2)
    with pytest.raises(EnvironmentFailure, match="actor 2 was lost: killed"):
        source.take(0)


def test_what_is_under_way_fits_into_the_store() -> None:
    block = CODEC.max_bytes(STEPS, 1)
    pool = PoolInMemory(store=10 * block)
    source = source_of(pool, store_share=0.5, blocks_ahead=3)
    for number in range(4):
        pool.work(number)
    source.publish(lambda: np.zeros(1, np.float32), 0, trained=0)
    source.take(0)
    assert sum(len(actor.asked) for actor in pool.actors.values()) == 5


def test_more_machines_are_more_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exarl.workflows.elastic.LOOK_EVERY_S", 0.0)
    pool = PoolInMemory(room=2)
    source = source_of(pool, n_actors=None)
    source.take(0)
    assert sorted(pool.actors) == [0, 1]
    pool._room = 5
    source.take(0)
    assert sorted(pool.actors) == [0, 1, 2, 3, 4]


def test_a_resumed_run_has_its_actors_back_and_numbers_go_on() -> None:
    states = {"3/sent": np.array(1), "7/sent": np.array(1), "actors_made_0": np.array(9)}
    pool = PoolInMemory()
    source_of(pool, states)
    assert pool.hired == [(3, ["3/sent"]), (7, ["7/sent"]), (9, []), (10, [])]


def test_volunteers_take_all_places_of_a_resumed_run() -> None:
    """Nothing has joined yet when a run goes on, so the room says nothing of what will."""
    states = {"3/sent": np.array(1), "7/sent": np.array(1), "actors_made_0": np.array(9)}
    pool = PoolInMemory(room=0)
    source_of(pool, states, n_actors=None, listen="0")
    assert pool.hired == [(3, ["3/sent"]), (7, ["7/sent"])]
    pool = PoolInMemory(room=0)
    source_of(pool, states, n_actors=1, listen="0")
    assert pool.hired == [(3, ["3/sent"])]


def test_volunteers_that_fail_do_not_end_the_run() -> None:
    pool = PoolInMemory(room=1)
    notes: list[str] = []
    source = source_of(pool, n_actors=None, listen="0", note=notes.append)
    for number in range(9):
        pool.work(number)
        pool.lose(number)
        source.take(0)
    assert len(pool.hired) == 10
    assert notes[0] == "actor 0 was lost (killed); none is left, waiting for others"
    pool.events.append(ActorEvent(NOTE, -1, error="actor 9 joined"))
    source.take(0)
    assert notes[-1] == "actor 9 joined"


@pytest.mark.parametrize(
    "payload", [b"nonsense", encoded(1, 0, 1)[:-1], encoded(1, 0, 1) + b"more"]
)
@pytest.mark.parametrize("kind", [BLOCK, STATE])
def test_an_actor_that_sends_nonsense_is_lost(kind: str, payload: bytes) -> None:
    pool = PoolInMemory()
    notes: list[str] = []
    source = source_of(pool, n_actors=2, note=notes.append)
    pool.work(0)
    pool.events.append(ActorEvent(kind, 0, payload))
    assert source.take(0) is None
    assert pool.dismissed == [0] and "it sent nonsense" in notes[0]


def test_learners_share_the_actors() -> None:
    numbers = []
    for rank in range(2):
        pool = PoolInMemory()
        source_of(pool, learners=2, rank=rank, n_actors=5)
        numbers += [number for number, _ in pool.hired]
    assert sorted(numbers) == [0, 1, 2, 3, 4]
    assert [share_of(5, i, 2) for i in range(2)] == [3, 2]
    assert share_of(1, 1, 2) == 1
