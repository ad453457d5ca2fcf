"""Messages come out as they went in; what is not a message is refused with a clear error."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.learning import discrete_spec

from exarl.comm.messages import (
    HEADER_BYTES,
    ActorState,
    BlockHeader,
    Grant,
    GroupCall,
    Halt,
    Join,
    Leave,
    MessageError,
    Order,
    PartOfCheckpoint,
    Reply,
    SendState,
    StepEnvs,
    StepHeader,
    StepKind,
    StopActing,
    Tag,
    Typed,
    Welcome,
    decode,
    encode,
    header,
)
from exarl.training.actors import Tally
from exarl.training.rounds import Decision, Report
from exarl.types import EnvSpec

KINDS = [
    *(Grant, SendState, Halt, StopActing, StepEnvs),
    *(ActorState, BlockHeader, StepHeader, GroupCall, PartOfCheckpoint),
    *(Join, Welcome, Leave),
]
WHOLE = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(StepKind),
    "call": st.sampled_from(["reset", "step", "close", "get_state", "set_state", "compute", "end"]),
    "seed": st.none() | WHOLE,
    "numbers": st.text(),
    "block_numbers": st.lists(WHOLE, max_size=4).map(tuple),
    **{name: st.text() for name in ("version", "place", "configuration", "run", "part", "reason")},
    "timeout": st.floats(0, 1e9),
    "again": st.booleans(),
    "silent": st.lists(WHOLE, max_size=40),
}


def examples(kind: type[Typed]) -> st.SearchStrategy[Typed]:
    values = {name: VALUES.get(name, WHOLE) for name in kind.__struct_fields__}
    if kind is Grant:
        values["version"] = WHOLE  # of weights
    return st.builds(kind, **values)


BUFFERS = st.lists(st.binary(max_size=99), max_size=3)


def test_every_kind_is_tried_here() -> None:
    bases = (Typed, Order, Reply)
    named = {kind for base in bases for kind in base.__subclasses__()} - {*bases}
    assert named == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_message_survives_the_journey(kind: type[Typed], data: Any) -> None:
    message, buffers = data.draw(examples(kind)), data.draw(BUFFERS)
    payload = encode(message, *buffers)
    for received in (payload, np.frombuffer(payload, np.uint8)):
        found, behind = decode(received, kind)
        assert (type(found), found) == (kind, message)
        assert behind.tobytes() == b"".join(buffers)
    if issubclass(kind, Order):
        assert decode(payload, Order)[0] == message


@given(numbers=st.lists(st.floats(), max_size=9), whole=st.lists(WHOLE, max_size=9))
def test_dataclasses_survive_the_journey(numbers: list[float], whole: list[int]) -> None:
    report = Report(
        3,
        5,
        {"env_restarts": 1},
        numbers,
        whole,
        numbers,
        whole,
        whole[0] if whole else None,
        [whole],
    )
    for message in (report, Decision(True, False, True, report), Tally(*range(5)), discrete_spec()):
        found, behind = decode(encode(message), type(message))
        assert repr(found) == repr(message), "equal, with nan equal to itself"
        assert not len(behind)


def test_a_spec_of_a_continuous_space_survives_the_journey() -> None:
    spec = dataclasses.replace(
        discrete_spec(), n_actions=None, action_low=(-np.inf, -1.0), about={"solver": "3.1"}
    )
    assert decode(encode(spec), EnvSpec)[0] == spec


def test_arrays_behind_a_header_are_views_with_their_alignment() -> None:
    weights = np.arange(6, dtype=np.float32)
    received = np.frombuffer(encode(Grant(3), weights, np.ones((2, 3))), np.uint8)
    _, behind = decode(received, Order)
    assert behind.base is not None and np.shares_memory(behind, received)
    found = behind[:24].view(np.float32)
    np.testing.assert_array_equal(found, weights)
    assert found.flags.aligned
    np.testing.assert_array_equal(behind[24:].view(np.float64), np.ones(6))


@pytest.mark.parametrize(
    "message",
    [
        Grant(2**40),
        ActorState(2**31, 2**31, 2**31, 2**31),
        StepHeader(StepKind.STEPPED, 2**62, -1, 2**31, 2**31, 2**31, 2**31),
        BlockHeader((2**40, 10**6), 10**5, 10**6, 10**6, 10**4, 10**4, 10**4),
    ],
)
def test_small_headers_have_one_length(message: Typed) -> None:
    """Blocks of a run have the same length but for their ends; steps have a fixed place for it."""
    assert len(header(message)) == HEADER_BYTES


@pytest.mark.parametrize("length", [0, 1, 3, 4, 20, 63])
def test_a_message_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(MessageError, match=f"a message of {length} bytes is cut short"):
        decode(encode(Grant(1))[:length], Order)


@pytest.mark.parametrize("message", [ActorState(), Tally(), [1, 2], "text", {"version": 1}])
def test_a_message_of_another_kind_is_refused(message: object) -> None:
    with pytest.raises(MessageError, match="is not of the kind Order"):
        decode(encode(message), Order)


def test_noise_is_refused() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        noise = rng.integers(0, 256, HEADER_BYTES, np.uint8)
        noise[:4] = (40, 0, 0, 0)
        with pytest.raises(MessageError):
            decode(noise, Order)


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Grant(1).version = 2  # type: ignore[misc]


def test_no_two_tags_have_one_number() -> None:
    assert len(Tag.__members__) == len(list(Tag))
