"""What an actor reports after a step comes out as it went in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.learning import discrete_spec

from exarl.comm.steps import StepCodec
from exarl.types import FAILURES, ArraySpec, Cut, End, EnvSpec, EpisodeInfo

IMAGES = EnvSpec("Toy-v0", ArraySpec((2, 3, 1), "uint8"), ArraySpec((), "int64"), 4)


@pytest.mark.parametrize("spec", [discrete_spec(), IMAGES])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_report_survives_the_journey(spec: EnvSpec, data: Any) -> None:
    width = data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    told = data.draw(st.booleans())
    codec, other = StepCodec(spec, width, told), StepCodec(spec, width, told)

    def info(slot: int) -> EpisodeInfo:
        return {f"e{slot}": (slot, 1, 2, 3, 4.5)} if told else {}

    def observations(count: int) -> np.ndarray:
        made = 100 * rng.random((count, *spec.observation.shape))
        return made.astype(spec.observation.dtype)

    row = codec.row
    row.observations[:], row.rewards[:] = observations(width), rng.normal(size=width)
    row.terminated[:], row.truncated[:] = rng.random((2, width)) < 0.5
    slots = st.lists(st.integers(0, width - 1), max_size=4)
    seen = observations(4)
    ends = [End(s, seen[i], rng.normal(), 7 + i, info(s)) for i, s in enumerate(data.draw(slots))]
    cuts = [Cut(s, 2**40 + s, rng.normal(), 3, info(s)) for s in data.draw(slots)]
    failures = rng.integers(0, 9, (data.draw(st.integers(0, 3)), 1 + len(FAILURES)))
    tail = data.draw(st.binary(max_size=9))
    payload = codec.encode(
        2, 2**62 + 1, 3, ends=ends, cuts=cuts, failed=(5, failures), seconds=(1, 2, 0.5), tail=tail
    ).copy()
    sent = [array.copy() for array in row]
    row.rewards[:] = -1  # of the next report
    found = other.decode(payload)
    assert found[:4] == (2, 2**62 + 1, 3, 5)
    assert found.seconds.tolist() == [1, 2, 0.5]
    for got, expected in zip(found.row, sent, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    assert [(e.slot, *e[2:]) for e in found.ends] == [(e.slot, *e[2:]) for e in ends]
    for end, before in zip(found.ends, ends, strict=True):
        np.testing.assert_array_equal(end.observation, before.observation)
    assert found.cuts == cuts
    np.testing.assert_array_equal(found.failures, failures)
    assert found.tail.tobytes() == tail
