"""A stream that only those who know the key can begin, change or continue."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exarl.comm.wire import MAGIC, Frame, Wire, WireError

KEY = b"a key that is long enough for tests"


class Line:
    """Both ends, joined in memory; ``change`` may alter what the end that joins has sent."""

    def __init__(self, listener: bytes = KEY, joiner: bytes = KEY, longest: int = 1 << 20) -> None:
        self.listener = Wire(listener, listens=True, longest=longest)
        self.joiner = Wire(joiner, listens=False, longest=longest)
        self._waiting: dict[Wire, bytes] = {self.listener: b"", self.joiner: b""}

    def greet(self) -> None:
        for _ in range(2):
            self.carry(self.joiner, self.listener)
            self.carry(self.listener, self.joiner)

    def carry(self, source: Wire, target: Wire, data: bytes = b"") -> list[Frame]:
        """Bring the greeting and ``data`` over, in the portions that the target wants."""
        self._waiting[target] += b"".join(source.greeting) + data
        source.greeting.clear()
        found = []
        while len(self._waiting[target]) >= target.wanted:
            portion = self._waiting[target][: target.wanted]
            self._waiting[target] = self._waiting[target][target.wanted :]
            if (frame := target.feed(np.frombuffer(portion, np.uint8))) is not None:
                found.append(frame)
        return found


def sealed(wire: Wire, tag: int, *buffers: bytes) -> bytes:
    return b"".join(wire.seal(tag, buffers))


@settings(deadline=None, max_examples=30)
@given(messages=st.lists(st.tuples(st.integers(0, 99), st.lists(st.binary(max_size=300)))))
def test_frames_arrive_in_order_and_unchanged(messages: list[tuple[int, list[bytes]]]) -> None:
    line = Line()
    line.greet()
    assert line.listener.open and line.joiner.open
    for source, target in ((line.joiner, line.listener), (line.listener, line.joiner)):
        stream = b"".join(sealed(source, tag, *buffers) for tag, buffers in messages)
        found = line.carry(source, target, stream)
        assert [(f.tag, f.payload.tobytes()) for f in found] == [
            (tag, b"".join(buffers)) for tag, buffers in messages
        ]


def test_arrays_travel_as_their_bytes() -> None:
    line = Line()
    line.greet()
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    stream = b"".join(line.joiner.seal(1, [array, np.empty(0), b"end"]))
    (frame,) = line.carry(line.joiner, line.listener, stream)
    assert frame.payload.tobytes() == array.tobytes() + b"end"


def test_both_ends_notice_another_key() -> None:
    line = Line(joiner=b"another key that is long enough")
    with pytest.raises(WireError, match="another key"):
        line.greet()
    assert not line.joiner.open

    # An end that pretends not to notice gets no further.
    listener = Wire(KEY, listens=True)
    listener.feed(np.frombuffer(MAGIC + bytes(32), np.uint8))
    with pytest.raises(WireError, match="another key"):
        listener.feed(np.zeros(32, np.uint8))
    assert not listener.open


def test_a_proof_cannot_be_sent_back() -> None:
    """What the listener proves does not serve a stranger as a proof of its own."""
    listener = Wire(KEY, listens=True)
    listener.feed(np.frombuffer(MAGIC + bytes(32), np.uint8))
    answer = b"".join(listener.greeting)
    with pytest.raises(WireError):
        listener.feed(np.frombuffer(answer[32:], np.uint8))


def test_garbage_is_refused_after_its_first_bytes() -> None:
    listener = Wire(KEY, listens=True)
    assert listener.wanted == len(MAGIC) + 32
    with pytest.raises(WireError, match="does not speak"):
        listener.feed(np.frombuffer(b"GET / HTTP/1.1\r\n".ljust(listener.wanted), np.uint8))


def flipped(stream: bytes) -> bytes:
    return stream[:-1] + bytes([stream[-1] ^ 1])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda first, second: flipped(first),
        lambda first, second: first + first,
        lambda first, second: second,
        lambda first, second: first[:8] + bytes([first[8] ^ 1]) + first[9:],
    ],
    ids=["changed", "repeated", "left out", "another tag"],
)
def test_what_a_third_party_does_to_the_stream_is_noticed(
    spoil: Callable[[bytes, bytes], bytes],
) -> None:
    line = Line()
    line.greet()
    stream = spoil(sealed(line.joiner, 1, b"first"), sealed(line.joiner, 1, b"second"))
    with pytest.raises(WireError, match="changed on its way"):
        line.carry(line.joiner, line.listener, stream)


def test_a_frame_of_one_direction_is_none_of_the_other() -> None:
    line = Line()
    line.greet()
    with pytest.raises(WireError, match="changed on its way"):
        line.carry(line.listener, line.listener, sealed(line.listener, 1, b"echo"))


def test_a_frame_that_is_too_long_is_refused_before_its_payload() -> None:
    line = Line(longest=100)
    line.greet()
    head = sealed(line.joiner, 1, bytes(101))[:48]
    with pytest.raises(WireError, match="101 bytes; 100 are allowed"):
        line.carry(line.joiner, line.listener, head)
