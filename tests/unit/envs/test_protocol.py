"""The bytes of the protocol: as documented, and nothing else."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exarl.envs.external.protocol import (
    MAX_ARRAYS,
    TYPES,
    Fault,
    Kind,
    Message,
    ProtocolError,
    decode,
    encode,
    error_message,
    pong_message,
    read_error,
    read_pong,
    read_result,
    reset_message,
    result_message,
    seed_of,
    with_session,
)

ARRAYS = st.sampled_from(sorted(TYPES)).flatmap(
    lambda code: hnp.arrays(TYPES[code], hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


def test_a_reset_byte_by_byte() -> None:
    """Written down here from docs/external.md, not with the code under test."""
    expected = b"EXRL" + bytes([1, 3]) + b"\1\0" + bytes([7, 0, 0, 0, 0, 0, 0, 0])
    expected += struct.pack("<Q", 16) + bytes([2, 0, 0, 0, 0, 0, 0, 0]) + struct.pack("<q", 42)
    assert encode(reset_message(42, session=7)) == expected


def test_a_result_byte_by_byte() -> None:
    message = result_message(np.array([1.5, -2, 3], np.float32), 0.25, True, False, session=258)
    expected = b"EXRL\x01\x06\x03\x00" + b"\x02\x01\0\0\0\0\0\0" + struct.pack("<Q", 32 + 16 + 24)
    expected += b"\x03\x01" + bytes(6) + struct.pack("<Q3f", 3, 1.5, -2, 3) + bytes(4)
    expected += b"\x04\x00" + bytes(6) + struct.pack("<d", 0.25)
    expected += b"\x01\x01" + bytes(6) + struct.pack("<Q", 2) + b"\x01\x00" + bytes(6)
    assert encode(message) == expected
    assert read_result(decode(expected))[1:] == (0.25, True, False)


@given(st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.lists(ARRAYS, max_size=5))
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read(kind: Kind, session: int, arrays: list[np.ndarray]) -> None:
    again = decode(encode(Message(kind, tuple(arrays), session)))
    assert (again.kind, again.session, len(again.arrays)) == (kind, session, len(arrays))
    for one, other in zip(arrays, again.arrays, strict=True):
        np.testing.assert_array_equal(one, other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_noise_is_refused(noise: bytes) -> None:
    for data in (noise, b"EXRL\x01" + noise, encode(reset_message(1))[:24] + noise):
        try:
            decode(data)
        except ProtocolError as error:
            assert str(error)


@pytest.mark.parametrize("seed", range(5))
def test_a_changed_message_is_refused_or_is_another_message(seed: int) -> None:
    """Whatever is not refused is exactly what its bytes say."""
    rng = random.Random(seed)
    whole = encode(result_message(np.arange(4.0), 1.0, False, True, 99))
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 255, rng.randrange(256)))
        cut = bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])
        try:
            message = decode(cut)
        except ProtocolError:
            continue
        assert len(encode(message)) == len(cut)


def header(kind: int = 3, arrays: int = 0, length: int = 0, version: int = 1) -> bytes:
    return b"EXRL" + struct.pack("<BBHQQ", version, kind, arrays, 0, length)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "header"),
        (b"EXRL", "header"),
        (b"HTTP/1.1 200 OK and so on", "begins with"),
        (header(version=2), "version 2"),
        (header(kind=0), "kind 0"),
        (header(kind=11), "kind 11"),
        (header(arrays=MAX_ARRAYS + 1), "arrays"),
        (header(length=8), "follow"),
        (header() + bytes(8), "follow"),
        (header(arrays=1), "ends inside"),
        (header(arrays=1, length=8) + b"\x09" + bytes(7), "type 9"),
        (header(arrays=1, length=8) + b"\x01\x09" + bytes(6), "dimensions"),
        (header(arrays=1, length=8) + b"\x01\x02" + bytes(6), "ends inside"),
        (header(arrays=1, length=16) + b"\x01\x01" + bytes(6) + b"\xff" * 8, "larger"),
        (
            header(arrays=1, length=24) + b"\x04\x02" + bytes(6) + struct.pack("<QQ", 2**32, 2**32),
            "larger",
        ),
        (
            header(arrays=1, length=24) + b"\x04\x02" + bytes(6) + struct.pack("<QQ", 0, 2**63),
            "larger",
        ),
        (header(arrays=0, length=8) + bytes(8), "too many"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, word: str) -> None:
    with pytest.raises(ProtocolError, match=word):
        decode(data)


def test_the_session_can_be_changed() -> None:
    message = reset_message(5, session=1)
    assert decode(with_session(encode(message), 2**63 + 5)).session == 2**63 + 5
    assert seed_of(decode(with_session(encode(message), 3))) == 5


def test_small_messages() -> None:
    assert seed_of(reset_message(None)) is None
    assert read_pong(pong_message(3, True)) == (3, True)
    assert read_error(error_message(Fault.FULL, "ä full\nhouse")) == (4, "ä full house")
    assert len(encode(error_message(Fault.FAILED, "x" * 10**6))) < 5000


@pytest.mark.parametrize(
    "arrays",
    [(), (np.zeros(2, np.int64),), (np.array(1.0),), (np.array(-2),), (np.array(1), np.array(1))],
)
def test_a_reset_that_holds_no_seed(arrays: tuple[np.ndarray, ...]) -> None:
    with pytest.raises(ProtocolError):
        seed_of(Message(Kind.RESET, arrays))
