"""Acting for environments elsewhere gives the blocks of the one rollout, also when some fail."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.envs import Counter, Drift, Flaky, KeptDrift
from support.learning import (
    Scripted,
    adapter_of,
    assert_same_arrays,
    assert_same_block,
    collect,
    make_agent,
    through_storage,
)
from support.transitions import expected_rows, given_rows

from exarl.acting.block_builder import BlockBuilder
from exarl.acting.env_batch import EnvBatch
from exarl.acting.inference import Batching, InferenceThread, Station
from exarl.acting.rollout import Rollout
from exarl.comm.messages import (
    LAST,
    Grant,
    Order,
    SendState,
    StepEnvs,
    StepKind,
    StopActing,
    decode,
)
from exarl.comm.steps import StepCodec
from exarl.envs.episode import Episode
from exarl.envs.guard import Guard
from exarl.envs.taken import TAKEN
from exarl.errors import EnvironmentFailure
from exarl.learning.exploration import Streams
from exarl.records.clock import Clock
from exarl.records.trace import Tracer
from exarl.types import ACTOR_PHASES, Arrays, Block
from exarl.workflows.seed import Stepper

SEED, LIMIT, STEPS = 3, 12, 5
MakeEnv = Callable[[int], Any]


def clock() -> Clock:
    return Clock(Tracer(0, "learner", enabled=False))


def episodes_of(make: MakeEnv, env_ids: Sequence[int]) -> list[Episode]:
    found = []
    for i in env_ids:
        env = make(i)
        guard = Guard(lambda i=i: make(i), 1000)  # type: ignore[misc]
        found.append(Episode(env, adapter_of(env, limit=LIMIT), LIMIT, SEED, i, guard=guard))
    return found


class Place:
    """An inference thread that is worked by hand, and the actors it acts for, in this process.

    Orders to ranks in ``slow`` lie where they are.
    """

    def __init__(
        self,
        make: MakeEnv,
        groups: Sequence[Sequence[int]],
        *,
        agent: Any = None,
        wait: float = 0.0,
        rows: int | None = None,
        stored: Arrays | None = None,
    ) -> None:
        spec = adapter_of(make(0), limit=LIMIT).spec
        self.agent = agent or Scripted(spec)
        self.make, self.groups = make, {1 + g: ids for g, ids in enumerate(groups)}
        self.reports: deque[tuple[int, np.ndarray]] = deque()
        self.orders: dict[int, deque[np.ndarray]] = {rank: deque() for rank in self.groups}
        self.slow: set[int] = set()
        self.batches = {rank: EnvBatch(episodes_of(make, ids)) for rank, ids in self.groups.items()}
        if stored is not None:
            for envs in self.batches.values():
                envs.restore(stored)
        self.steppers = {rank: Stepper(envs, spec, clock()) for rank, envs in self.batches.items()}
        self.stations = [
            Station(rank, BlockBuilder(self.agent, ids, Streams(SEED, ids), STEPS))
            for rank, ids in self.groups.items()
        ]
        width = len(groups[0])
        self.thread = InferenceThread(
            self,
            self.agent,
            self.stations,
            StepCodec(spec, width),
            Batching(rows or width * len(groups), wait),
            self.agent.set_weights,
            clock(),
            stored=stored,
        )
        self.thread.offer(self.agent.get_weights(), 7)
        for rank, stepper in self.steppers.items():
            self.reports.append((rank, stepper.hello().copy()))

    def poll(self, source: int = -1, tag: int = 0) -> tuple[int, np.ndarray] | None:
        return self.reports.popleft() if self.reports else None

    def post(self, payload: Any, dest: int, tag: int) -> None:
        self.orders[dest].append(np.frombuffer(payload, np.uint8))
        self.serve()

    def serve(self) -> None:
        """Let every actor that is not slow do what it was told."""
        for rank, orders in self.orders.items():
            while orders and rank not in self.slow:
                self.reports.append((rank, self.steppers[rank].obey(orders.popleft()).copy()))

    def grant(self, blocks: int = 1) -> None:
        self.thread.orders.extend([(Grant(7), rank) for rank in self.groups] * blocks)

    def work(self) -> None:
        """Until there is nothing more to do."""
        while self.thread.work():
            self.serve()

    def blocks(self, count: int = 1) -> dict[int, list[Block]]:
        """The next blocks of every actor."""
        self.grant(count)
        self.work()
        found: dict[int, list[Block]] = {rank: [] for rank in self.groups}
        while self.thread.blocks:
            rank, block = self.thread.blocks.popleft()
            found[rank].append(block)
        return found

    def state(self, order: SendState | StopActing) -> Arrays:
        self.thread.orders.append((order, -1))
        self.work()
        arrays: Arrays = {}
        while self.thread.answers:
            _, answer, state = self.thread.answers.popleft()
            asked = order.snapshot if isinstance(order, SendState) else LAST
            assert answer.snapshot == asked
            arrays |= state
        return arrays


def rollout_of(make: MakeEnv, env_ids: Sequence[int], agent: Any = None) -> Rollout:
    agent = agent or Scripted(adapter_of(make(0), limit=LIMIT).spec)
    return Rollout(agent, episodes_of(make, env_ids), Streams(SEED, env_ids), STEPS)


def counters(env_id: int) -> Counter:
    return Counter(env_id, (3, 1, 0, 4), SEED)


def lstm(kind: str) -> Any:
    return make_agent(adapter_of(Drift(), limit=LIMIT).spec, id=kind, units=4)


@pytest.mark.parametrize("groups", [[[0]], [[4, 5, 6]], [[0, 1], [2, 3], [4, 5]]])
def test_blocks_are_those_of_the_rollout(groups: list[list[int]]) -> None:
    place = Place(counters, groups)
    found = place.blocks(4)
    for rank, ids in place.groups.items():
        rollout = rollout_of(counters, ids)
        assert len(found[rank]) == 4
        for block in found[rank]:
            assert_same_block(block, collect(rollout, 7))


def test_actions_that_were_taken_instead_are_in_the_blocks() -> None:
    class Overruled(Counter):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {TAKEN: 1} if self._step == 2 else {})

    place = Place(lambda i: Overruled(i, (3,), SEED), [[0, 1], [2, 3]])
    for rank, blocks in place.blocks(3).items():
        rollout = rollout_of(lambda i: Overruled(i, (3,), SEED), place.groups[rank])
        for block in blocks:
            assert_same_block(block, collect(rollout, 7))
            assert (block.actions[block.observations[:-1, :, 2] == 1] == 1).all()
            assert not block.actions.all()


@pytest.mark.parametrize("kind", ["PPO-v0", "DQN-v0"])
def test_memory_is_kept_for_every_environment(kind: str) -> None:
    place = Place(lambda _: Drift(), [[0, 1]], agent=lstm(kind))
    rollout = rollout_of(lambda _: Drift(), [0, 1], lstm(kind))
    for block in place.blocks(6)[1]:
        assert_same_block(block, collect(rollout, 7))
        assert block.recorded["memory/h"].any()
    assert_same_arrays(place.state(SendState(1)), rollout.state())


def test_memory_of_a_batch_of_several_actors_finds_its_way_back() -> None:
    groups = [[0, 1], [2, 3]]
    place = Place(lambda _: Drift(), groups, agent=lstm("PPO-v0"))
    found = place.blocks(3)
    for rank, ids in place.groups.items():
        rollout = rollout_of(lambda _: Drift(), ids, lstm("PPO-v0"))
        for block in found[rank]:
            for name, expected in collect(rollout, 7).recorded.items():
                # Another number of rows may round in another way.
                np.testing.assert_allclose(block.recorded[name], expected, rtol=1e-4, atol=1e-6)


PLACES = st.sets(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=8)


@given(fails=PLACES, other=PLACES)
@settings(max_examples=25, deadline=None)
def test_environments_that_fail_are_cut_and_counted_as_in_the_rollout(
    fails: set[tuple[int, int]], other: set[tuple[int, int]]
) -> None:
    def make(env_id: int) -> Flaky:
        return Flaky(env_id, {4: fails, 5: other}.get(env_id, set()))

    place, rollout = Place(make, [[4, 5, 6]]), rollout_of(make, [4, 5, 6])
    for block in place.blocks(8)[1]:
        assert_same_block(block, collect(rollout, 7))


@pytest.mark.parametrize("kind", [Drift, KeptDrift])
def test_a_resumed_run_continues_where_it_was(kind: Any) -> None:
    def make(_: int) -> Any:
        return kind()

    rollout = rollout_of(make, [0, 1], lstm("PPO-v0"))
    place = Place(make, [[0, 1]], agent=lstm("PPO-v0"))
    for block in place.blocks(3)[1]:
        assert_same_block(block, collect(rollout, 7))
    state = place.state(StopActing())
    assert_same_arrays(state, rollout.state())
    again = Place(make, [[0, 1]], agent=lstm("PPO-v0"), stored=through_storage(state)[0])
    for block in again.blocks(3)[1]:
        assert_same_block(block, collect(rollout, 7))


def test_a_block_given_up_keeps_its_failures_in_the_state() -> None:
    place = Place(lambda i: Flaky(i, {(0, 2)}), [[4]])
    place.grant()
    while place.batches[1]._episodes[0].number < 1:
        assert place.thread.work()
    state = place.state(StopActing())
    assert state["4/failures"].sum() == 1
    assert place.stations[0].dropped == 1
    assert place.stations[0].gone


class BrokenState(KeptDrift):
    """Cannot give its state the first time."""

    broken = True

    def get_state(self) -> Arrays:
        if self.broken:
            BrokenState.broken = False
            raise RuntimeError("no state")
        return super().get_state()


@pytest.mark.parametrize("order", [SendState(1), StopActing()])
def test_a_failure_while_a_state_is_taken_counts_once(order: SendState | StopActing) -> None:
    BrokenState.broken = False
    place = Place(lambda _: BrokenState(), [[0]], agent=lstm("PPO-v0"))
    place.blocks()
    BrokenState.broken = True
    state = place.state(order)
    assert (state["0/failures"].sum(), int(state["0/restarts"])) == (1, 1)
    if isinstance(order, StopActing):
        stored = through_storage(state)[0]
        place = Place(lambda _: BrokenState(), [[0]], agent=lstm("PPO-v0"), stored=stored)
    (block,) = place.blocks()[1]
    assert (block.failures[:, 1:].sum(), block.restarts) == (1, 1)


def test_only_the_episodes_that_the_last_call_replaced_are_named_as_changed() -> None:
    BrokenState.broken = False
    envs = EnvBatch(episodes_of(lambda _: BrokenState(), [0, 1]))
    BrokenState.broken = True
    stored = envs.state()
    assert [cut.slot for cut in envs.changed] == [0]
    envs.restore(stored)
    assert envs.changed == []


def test_the_restarts_of_an_abandoned_block_are_kept_in_the_state() -> None:
    place = Place(lambda i: Flaky(i, {(0, 2)}), [[4]])
    place.grant()
    while place.batches[1]._episodes[0].number < 1:
        assert place.thread.work()
    assert int(place.state(StopActing())["4/restarts"]) == 1


# -- batching -------------------------------------------------------------------------------------


class Watched(Scripted):
    """Remembers how many it acted for at a time."""

    widths: list[int]

    def action(self, observations: np.ndarray, rng: Streams | None = None) -> Any:
        self.widths.append(len(observations))
        return super().action(observations, rng)


def watched() -> Watched:
    agent = Watched(adapter_of(counters(0), limit=LIMIT).spec)
    agent.widths = []
    return agent


def test_all_are_acted_for_at_once_while_all_are_in_step() -> None:
    place = Place(counters, [[0, 1], [2, 3], [4, 5]], agent=watched(), wait=10.0)
    place.blocks(2)
    assert place.agent.widths == [6] * (2 * STEPS)


def test_a_batch_is_no_larger_than_was_asked_for() -> None:
    place = Place(counters, [[0, 1], [2, 3], [4, 5]], agent=watched(), rows=4)
    assert all(len(found) == 2 for found in place.blocks(2).values())
    assert set(place.agent.widths) <= {4, 2}
    assert sum(place.agent.widths) == 2 * STEPS * 6


def test_a_slow_environment_holds_the_others_up_no_longer_than_the_deadline() -> None:
    wait = 0.02
    place = Place(counters, [[0], [1], [2]], wait=wait)
    place.slow = {2}
    place.grant()
    started = time.perf_counter()
    while len(place.thread.blocks) < 2 and time.perf_counter() - started < 30:
        place.thread.work()
        place.serve()
    assert {rank for rank, _ in place.thread.blocks} == {1, 3}
    assert time.perf_counter() - started >= (STEPS - 1) * wait
    assert len(place.orders[2]) == 1, "the slow one still has the first action before it"
    place.slow = set()
    place.serve()
    place.work()
    late = [block for rank, block in place.thread.blocks if rank == 2]
    assert_same_block(late[0], collect(rollout_of(counters, [1]), 7))


def test_no_actor_waits_for_those_without_a_grant() -> None:
    place = Place(counters, [[0], [1]], wait=1000.0)
    place.thread.orders.append((Grant(7), 1))
    place.work()
    assert [rank for rank, _ in place.thread.blocks] == [1]


class Versioned(Scripted):
    """Remembers the weights of every action."""

    weights: float
    acted: list[float]

    def set_weights(self, weights: np.ndarray) -> None:
        self.weights = float(weights[0])

    def action(self, observations: np.ndarray, rng: Streams | None = None) -> Any:
        self.acted.append(self.weights)
        return super().action(observations, rng)


def test_new_weights_act_from_the_next_step_on_within_a_block() -> None:
    agent = Versioned(adapter_of(counters(0), limit=LIMIT).spec)
    agent.acted = []
    place = Place(counters, [[0]], agent=agent)
    place.slow = {1}
    place.grant()
    place.work()
    place.thread.offer(np.float32([5]), 8)
    place.slow = set()
    place.serve()
    place.work()
    assert agent.acted == [0, 5, 5, 5, 5]
    ((_, block),) = place.thread.blocks
    assert block.version == 7, "of the weights that began it"


# -- processes that come and go -------------------------------------------------------------------


def test_a_new_process_gets_fresh_places_and_what_the_old_one_says_late_is_ignored() -> None:
    def make(_: int) -> Drift:
        return Drift()

    place = Place(make, [[0, 1]], agent=lstm("PPO-v0"))
    place.blocks(2)
    place.slow = {1}
    place.grant()
    place.work()
    old = place.steppers[1]
    late = old.obey(place.orders[1].popleft()).copy()  # an answer that is still on its way
    envs = EnvBatch(episodes_of(make, [0, 1]))
    place.steppers[1] = Stepper(envs, place.agent.spec, clock())
    place.reports.append((1, place.steppers[1].hello().copy()))
    place.slow = set()
    place.reports.append((1, late))
    place.work()
    (_, block), *more = place.thread.blocks
    assert not more
    fresh = collect(rollout_of(make, [0, 1], lstm("PPO-v0")))
    np.testing.assert_array_equal(block.observations[0], fresh.observations[0])
    assert not block.recorded["memory/h"][0].any()
    assert (place.stations[0].made, place.stations[0].dropped) == (3, 1)
    assert place.reports == deque()


def windowed() -> Any:
    return make_agent(adapter_of(counters(0), limit=LIMIT).spec, n_step=4, gamma=0.5)


def test_the_lead_of_a_new_process_ends_where_the_old_one_was_lost() -> None:
    """What led to the block before is known; the steps after it are not."""
    agent = windowed()
    place = Place(counters, [[4, 5]], agent=agent)
    blocks = place.blocks(3)[1]
    place.slow = {1}
    place.grant()
    place.work()
    place.orders[1].clear()
    place.steppers[1] = Stepper(EnvBatch(episodes_of(counters, [4, 5])), agent.spec, clock())
    place.reports.append((1, place.steppers[1].hello().copy()))
    place.slow = set()
    place.work()
    blocks += place.blocks()[1]
    lead = blocks[3].lead
    assert lead is not None
    assert np.asarray(lead.known).all()
    assert np.asarray(lead.truncated | lead.terminated)[-1].all()
    assert given_rows(agent, blocks) == expected_rows(blocks, 4, 0.5)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_windows_do_not_run_over_steps_that_a_stop_has_cost(steps: int) -> None:
    """A block that was begun is given up, also where only the environments have made its first step."""
    agent = windowed()
    place = Place(counters, [[4, 5]], agent=agent)
    blocks = place.blocks(3)[1]
    place.grant()
    if steps == 0:  # the order to stop overtakes the first report
        place.slow = {1}
        place.thread.work()
        place.thread.orders.append((StopActing(), -1))
        place.thread.work()
        place.slow = set()
        place.serve()
    for _ in range(steps):
        place.thread.work()
    stored = through_storage(place.state(StopActing()))[0]
    assert place.stations[0].dropped == 1
    again = Place(counters, [[4, 5]], agent=agent, stored=stored)
    blocks += again.blocks(3)[1]
    assert given_rows(agent, blocks) == expected_rows(blocks, 4, 0.5)


def test_the_state_that_a_lost_process_owed_is_asked_of_the_next() -> None:
    place = Place(counters, [[0]])
    place.blocks()
    place.slow = {1}
    place.thread.orders.append((SendState(1), -1))
    place.work()
    place.orders[1].clear()
    place.steppers[1] = Stepper(EnvBatch(episodes_of(counters, [0])), place.agent.spec, clock())
    place.slow = set()
    place.reports.append((1, place.steppers[1].hello().copy()))
    place.work()
    assert len(place.thread.answers) == 1


def test_no_block_is_begun_after_the_order_to_stop() -> None:
    place = Place(counters, [[0]])
    place.work()
    place.slow = {1}
    place.thread.orders.append((StopActing(), -1))
    place.grant()
    place.work()
    assert [decode(order, Order)[0] for order in place.orders[1]] == [StopActing()]
    assert not place.stations[0].assembly.open


def test_a_process_that_comes_while_the_run_stops_is_told_to_stop() -> None:
    place = Place(counters, [[0]])
    place.work()
    place.slow = {1}
    place.thread.orders.append((StopActing(), -1))
    place.work()
    place.orders[1].clear()  # lost with the process
    place.steppers[1] = Stepper(EnvBatch(episodes_of(counters, [0])), place.agent.spec, clock())
    place.slow = set()
    place.reports.append((1, place.steppers[1].hello().copy()))
    place.work()
    assert place.steppers[1].over
    assert place.stations[0].gone


def test_what_the_thread_raises_is_left_for_the_learner() -> None:
    place = Place(counters, [[0]])
    place.grant()
    healthy = place.steppers[1].obey

    def broken(order: np.ndarray) -> np.ndarray:
        report = healthy(order)
        if isinstance(decode(order, Order)[0], StepEnvs):
            place.steppers[1]._codec.row.rewards[0] = np.nan
        return report

    place.steppers[1].obey = broken  # type: ignore[method-assign]
    place.thread.run()
    assert isinstance(place.thread.error, EnvironmentFailure)
    assert "environment 0" in str(place.thread.error)


def test_the_actor_s_time_is_accounted_for() -> None:
    place = Place(counters, [[0, 1]])
    place.blocks()
    block = place.blocks()[1][0]
    seconds = dict(zip(ACTOR_PHASES, block.seconds.tolist(), strict=True))
    assert 0 < seconds["env"] < 5
    assert 0 < seconds["inference"] < 5
    assert min(seconds.values()) >= 0


def test_the_time_spent_on_acting_is_not_counted_as_the_way_of_messages_too() -> None:
    """The actor waited 100 s for messages; 40 of them the learner needed for its action."""
    place = Place(counters, [[0]])
    (station,) = place.stations
    codec = StepCodec(place.agent.spec, 1)
    failed = place.batches[1].take_failures()
    report = codec.encode(StepKind.STEPPED, 1, failed=failed, seconds=(7.0, 100.0, 3.0))
    station.begun = 2
    station.since = time.perf_counter() - 40
    station.count(codec.decode(report))
    station.spent("inference")
    station.assembly.begin()
    seconds = dict(zip(ACTOR_PHASES, station.finish().seconds.tolist(), strict=True))
    assert seconds["inference"] == pytest.approx(40, abs=5)
    assert seconds["inference"] + seconds["send"] == pytest.approx(100)
    assert (seconds["env"], seconds["wait"], seconds["restart"]) == (7, 0, 3)
