"""An actor's loop: no state is sent while it holds a block that is not handed over."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from exarl.comm.codec import encode_arrays
from exarl.comm.messages import Grant, SendState, StopActing, Tag, encode
from exarl.records.clock import Clock
from exarl.records.trace import Tracer
from exarl.workflows.async_workflow import TwoSidedSink
from exarl.workflows.lagging_loops import LaggingConfig, act

WEIGHTS = np.zeros(2, np.float32)


class Wire:
    """A channel that gives the learner's orders, and keeps what the actor sends."""

    def __init__(self, orders: list[bytes]) -> None:
        self.orders = deque(np.frombuffer(order, np.uint8) for order in orders)
        self.sent: list[int] = []
        self.rank = 1

    def poll(self, source: int, tag: int) -> None:
        return None

    def receive(self, source: int, tag: int) -> tuple[int, np.ndarray]:
        return 0, self.orders.popleft()

    def post(self, payload: Any, dest: int, tag: int) -> None:
        self.sent.append(tag)


def actor_with(wire: Wire) -> Any:
    block = SimpleNamespace(seconds=np.zeros(5))
    rollout = SimpleNamespace(collect=lambda version, stopped: block, state=dict)
    return SimpleNamespace(
        channel=wire,
        agent=SimpleNamespace(set_weights=lambda weights: None),
        rollout=rollout,
        codec=SimpleNamespace(encode=lambda block, *numbers: encode_arrays({})),
        clock=Clock(Tracer(1, "actor", enabled=False)),
        layout=SimpleNamespace(learner_of=lambda group: 0),
        role=SimpleNamespace(group=0),
        fresh=True,
    )


def test_the_first_block_goes_before_the_first_state(monkeypatch: Any) -> None:
    """It is acted before the learner's first order, which may ask for a state."""
    monkeypatch.setattr("exarl.workflows.async_workflow.timed", lambda block, seconds: block)
    wire = Wire(
        [
            encode(SendState(1)),
            encode(Grant(1), WEIGHTS),
            encode(Grant(2), WEIGHTS),
            encode(StopActing()),
        ]
    )
    actor = actor_with(wire)
    act(actor, TwoSidedSink(actor), LaggingConfig())
    assert wire.sent == [Tag.BLOCK, Tag.STATE, Tag.BLOCK, Tag.STATE]
