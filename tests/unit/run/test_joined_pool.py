"""Simulations that join a learner: who gets a place, who is refused, and what is heard of the lost."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.learning import discrete_spec

from exarl.comm.codec import decode_arrays
from exarl.comm.exchange import Address
from exarl.comm.messages import (
    Grant,
    Join,
    Leave,
    SendState,
    Tag,
    Welcome,
    encode,
)
from exarl.errors import ConfigError, Stopped
from exarl.run.call import Call, Invitation, NoLearner
from exarl.run.joined_pool import JoinedActorPool
from exarl.training.actors import BLOCK, LOST, NOTE, READY, STATE
from exarl.types import EnvSpec
from exarl.version import __version__

KEY = b"a key that is long enough for tests"
SPEC = discrete_spec()


class Learner:
    """A pool that listens, and simulations that join it."""

    def __init__(self, stack: contextlib.ExitStack, ranks: int = 1) -> None:
        self._stack = stack
        self.pool = JoinedActorPool(KEY, self._welcome, ranks, timeout=60.0)
        self.address = self.pool.listen(Address("127.0.0.1", 0))
        self.notes: list[str] = []
        stack.callback(lambda: self.pool.close(Leave("the test is over")))

    @staticmethod
    def _welcome(actor: int) -> Welcome:
        return Welcome(actor, "{}", 1, "/run", "part", 0, 60.0)

    def call(self, ranks: int = 1, key: bytes = KEY) -> Call:
        call = Call(Invitation(self.address, key, 0.0), ranks)
        self._stack.callback(call.close)
        return call

    def joined(self, spec: EnvSpec = SPEC) -> tuple[Call, int, dict[str, np.ndarray]]:
        """A simulation with a place, ready to act."""
        call = self.call()
        welcome, states = heard(call)
        assert isinstance(welcome, Welcome)
        call.send(Tag.SPEC, encode(spec))
        return call, welcome.actor, decode_arrays(states)

    def events(self, count: int = 1) -> list[tuple[str, int]]:
        """The next events but notes, which are kept."""
        found: list[tuple[str, int]] = []

        def enough() -> bool:
            while self.pool.events:
                event = self.pool.events.popleft()
                if event.kind == NOTE:
                    self.notes.append(event.error)
                else:
                    found.append((event.kind, event.actor))
            return len(found) >= count

        until(enough)
        return found


def until(condition: Callable[[], Any], patience: float = 20.0) -> Any:
    end = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
    return found


def heard(call: Call) -> tuple[Any, np.ndarray]:
    """What the learner says next."""
    found: tuple[Any, np.ndarray] = until(call.next)
    return found


@pytest.fixture
def learner() -> Iterator[Learner]:
    with contextlib.ExitStack() as stack:
        yield Learner(stack)


def test_places_are_taken_in_their_order_with_their_states(learner: Learner) -> None:
    learner.pool.hire(4, {"4/length": np.array(7)})
    learner.pool.hire(5, {})
    _, first, states = learner.joined()
    _, second, _ = learner.joined()
    assert (first, second) == (4, 5) and int(states["4/length"]) == 7
    assert learner.events(2) == [(READY, 4), (READY, 5)]
    assert learner.pool.room() == 2
    learner.pool.hire(4, {})  # as for an actor that was started with the run
    third = learner.call()
    until(lambda: learner.pool.room() == 3)
    assert third.next() is None, "no place is open"
    learner.pool.hire(6, {})
    assert heard(third)[0].actor == 6


def test_orders_and_answers_reach_each_other(learner: Learner) -> None:
    learner.pool.hire(0, {})
    call, _, _ = learner.joined()
    learner.events()
    old, new = learner.pool.put(b"1234"), learner.pool.put(b"5678")
    for weights, version in ((old, 1), (old, 2), (new, 3)):
        learner.pool.roll(0, weights, version)
    learner.pool.ask_state(0, 9)
    orders = [(order, behind.tobytes()) for order, behind in (heard(call) for _ in range(4))]
    assert orders == [
        (Grant(1), b"1234"),
        (Grant(2), b""),  # with the weights that it has
        (Grant(3), b"5678"),
        (SendState(9), b""),
    ]
    call.send(Tag.BLOCK, b"block")
    call.send(Tag.STATE, b"state")
    assert learner.events(2) == [(BLOCK, 0), (STATE, 0)]
    assert not call.over
    learner.pool.stop(0)
    until(lambda: call.over)
    assert call.next() is None, "it goes on answering"


def test_nothing_is_heard_of_an_actor_after_its_loss(learner: Learner) -> None:
    learner.pool.hire(0, {})
    call, _, _ = learner.joined()
    learner.events()
    call.send(Tag.LEAVE, encode(Leave("its node is needed")))
    call.send(Tag.BLOCK, b"late")
    assert learner.events() == [(LOST, 0)] and learner.pool.room() == 0
    learner.pool.roll(0, b"weights", 1)
    learner.pool.dismiss(0)
    time.sleep(0.1)
    assert not learner.pool.events
    learner.pool.hire(1, {})
    call, actor, _ = learner.joined()
    assert actor == 1 and learner.events() == [(READY, 1)]
    learner.pool.dismiss(1)  # as when it sends nonsense
    with pytest.raises(NoLearner, match="is lost"):
        until(call.next)


def test_a_place_is_kept_for_one_that_is_able(learner: Learner) -> None:
    learner.pool.hire(3, {"3/length": np.array(7)})
    call = learner.call()
    assert heard(call)[0].actor == 3
    call.close("no module named solver")
    _, actor, states = learner.joined()
    assert actor == 3 and int(states["3/length"]) == 7
    assert learner.events() == [(READY, 3)]
    assert "could not become actor 3: no module named solver" in learner.notes[0]


def test_what_does_not_fit_is_refused(learner: Learner) -> None:
    learner.pool.hire(0, {})

    def refusal(call: Call) -> str:
        leave, _ = heard(call)
        assert isinstance(leave, Leave) and leave.code == ConfigError.exit_code
        return leave.reason

    assert "has 1 ranks (process_per_env), not 2" in refusal(learner.call(ranks=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exarl.run.call.__version__", "99.0")
        call = learner.call()
        assert f"it is EXARL 99.0, the learner's is {__version__}" in refusal(call)
    learner.joined()
    assert learner.events() == [(READY, 0)] and learner.pool.spec == SPEC
    learner.pool.hire(1, {})
    call, _, _ = learner.joined(dataclasses.replace(SPEC, n_actions=99))
    assert "other observations or actions" in refusal(call)
    _, actor, _ = learner.joined(dataclasses.replace(SPEC, about={"solver": "2"}))
    assert actor == 1 and learner.events() == [(READY, 1)]


def test_what_was_not_asked_for_ends_the_connection(learner: Learner) -> None:
    learner.pool.hire(0, {})
    call = learner.call()
    heard(call)
    call.send(Tag.BLOCK, b"before it is ready")
    with pytest.raises(NoLearner):
        until(call.next)
    again = learner.call()
    heard(again)
    again.send(Tag.JOIN, encode(Join(__version__, 1, "once more")))
    with pytest.raises(NoLearner):
        until(again.next)
    assert not [event for event in learner.pool.events if event.kind != NOTE]


def test_a_wrong_key_is_bad_input_and_no_learner_a_failure(learner: Learner) -> None:
    with pytest.raises(ConfigError, match="another key"):
        until(learner.call(key=b"another key that is long enough").next)
    with pytest.raises(NoLearner, match="no learner answers at"):
        Call(Invitation(Address("127.0.0.1", 9), KEY, 0.0), 1)


def test_the_first_that_is_ready_says_what_environments_look_like(learner: Learner) -> None:
    call = learner.call()
    notes: list[str] = []
    stopping: list[int] = []

    def stopped() -> None:
        if call.next() is not None:
            call.send(Tag.SPEC, encode(SPEC))
        if stopping:
            raise Stopped(2)

    assert learner.pool.first_spec(notes.append, stopped) == SPEC
    assert learner.events() == [(READY, 0)]
    stopping.append(2)
    learner.pool.spec = None
    with pytest.raises(Stopped):
        learner.pool.first_spec(notes.append, stopped)


def test_the_end_is_told(learner: Learner) -> None:
    learner.pool.hire(0, {})
    (call, _, _), waiting = learner.joined(), learner.call()
    until(lambda: learner.pool.room() == 2)
    learner.pool.close(Leave("the run ended (total_steps)"))
    for one in (call, waiting):
        assert heard(one)[0] == Leave("the run ended (total_steps)") and one.over
