"""Blocks and named arrays as bytes and back; blocks joined and taken apart."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.learning import assert_same_arrays, assert_same_block

from exarl.comm.codec import BlockCodec, decode_arrays, encode_arrays
from exarl.envs.info import LONGEST_NAME, MOST_NUMBERS
from exarl.types import (
    ACTOR_PHASES,
    BLOCK_ARRAYS,
    BLOCK_NUMBERS,
    FAILURES,
    ArraySpec,
    Block,
    EnvSpec,
    Steps,
    concatenate,
    specs_of_steps,
)

DTYPES = ("float32", "float64", "uint8", "int8", "int32", "int64", "bool")
SPECS = st.builds(
    ArraySpec, st.lists(st.integers(1, 3), max_size=2).map(tuple), st.sampled_from(DTYPES)
)
RECORDED = st.dictionaries(st.sampled_from(["log_prob", "state", "value"]), SPECS, max_size=3)


def values(rng: np.random.Generator, spec: ArraySpec, *leading: int) -> np.ndarray:
    return rng.integers(0, 120, (*leading, *spec.shape)).astype(spec.dtype)


def make_block(
    seed: int,
    spec: EnvSpec,
    recorded: Mapping[str, ArraySpec],
    steps: int,
    width: int,
    lead_steps: int = 0,
) -> Block:
    rng = np.random.default_rng(seed)
    specs = specs_of_steps(spec) if lead_steps else ()
    lead = Steps(*(values(rng, each, lead_steps, width) for each in specs)) if specs else None
    terminated = rng.random((steps, width)) < 0.2
    truncated = (rng.random((steps, width)) < 0.2) & ~terminated
    ends = int((terminated | truncated).sum())
    return Block(
        values(rng, spec.observation, steps + 1, width),
        values(rng, spec.action, steps, width),
        rng.normal(size=(steps, width)).astype(np.float32),
        terminated,
        truncated,
        values(rng, spec.observation, ends),
        rng.normal(size=ends),
        rng.integers(1, 2**40, ends),
        {name: values(rng, each, steps, width) for name, each in recorded.items()},
        int(rng.integers(2**40)),
        int(rng.integers(5)),
        rng.random(len(ACTOR_PHASES)),
        rng.integers(0, 99, (int(rng.integers(width + 1)), 1 + len(FAILURES))),
        lead,
    )


@st.composite
def runs(draw: Any) -> tuple[EnvSpec, dict[str, ArraySpec], int, int]:
    """A run's layout: spaces, recorded arrays, T and B."""
    spec = EnvSpec("Toy-v0", draw(SPECS), draw(SPECS), None)
    return spec, draw(RECORDED), draw(st.integers(1, 6)), draw(st.integers(1, 4))


@given(runs(), st.integers(0, 3), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_a_block_survives_its_journey(run: Any, lead_steps: int, seed: int) -> None:
    spec, recorded, steps, width = run
    block = make_block(seed, spec, recorded, steps, width, lead_steps)
    codec = BlockCodec(spec, recorded, lead_steps)
    payload = codec.encode(block)
    assert payload.dtype == np.uint8
    back = codec.decode(payload)
    assert_same_block(back, block)
    np.testing.assert_array_equal(back.seconds, block.seconds)
    assert list(back.recorded) == list(recorded)


def test_every_part_of_a_block_travels() -> None:
    """A new field of ``Block`` that no table names would be lost between ranks."""
    parts = {part.name for part in dataclasses.fields(Block)}
    assert parts == {*BLOCK_ARRAYS, *BLOCK_NUMBERS, "recorded", "lead", "episode_info"}


def test_a_block_says_who_sent_it_and_which_one_it_is() -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    codec, block = BlockCodec(spec, {}), make_block(1, spec, {}, 4, 2)
    head, back = codec.decode_numbered(codec.encode(block, 7, 2**40))
    assert (head.sender, head.number, head.steps, head.width) == (7, 2**40, 4, 2)
    assert_same_block(back, block)


@pytest.mark.parametrize("lead_steps", [0, 2])
def test_no_block_is_longer_than_the_longest(lead_steps: int) -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    codec, most = BlockCodec(spec, {}, lead_steps), 2**63 - 1
    block = make_block(1, spec, {}, 4, 2, lead_steps)
    everywhere = dataclasses.replace(
        block,
        terminated=np.ones((4, 2), bool),
        truncated=np.zeros((4, 2), bool),
        final_observations=np.zeros((8, 3), np.float32),
        episode_returns=np.zeros(8),
        episode_lengths=np.zeros(8, np.int64),
        failures=np.zeros((2, 1 + len(FAILURES)), np.int64),
        version=most,
        restarts=most,
    )
    assert len(codec.encode(everywhere, most, most)) <= codec.max_bytes(4, 2)


def test_blocks_of_a_run_differ_in_length_only_by_their_ends() -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    codec = BlockCodec(spec, {})
    blocks = [make_block(seed, spec, {}, 5, 2) for seed in range(8)]
    end = 3 * 4 + 8 + 8  # final observation, return, length
    failed = 8 * (1 + len(FAILURES))
    lengths = {
        len(codec.encode(b)) - end * len(b.episode_returns) - failed * len(b.failures)
        for b in blocks
    }
    assert len(lengths) == 1
    assert len({len(b.episode_returns) for b in blocks}) > 1


def test_arrays_that_are_not_contiguous_can_be_sent() -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((2,), "float32"), ArraySpec((), "int64"), 2)
    block = make_block(0, spec, {}, 4, 6)
    halved = Block(
        *(getattr(block, n)[:, ::2] for n in ("observations", "actions", "rewards")),
        np.zeros((4, 3), bool),
        np.zeros((4, 3), bool),
        np.zeros((0, 2), np.float32),
        np.zeros(0),
        np.zeros(0, np.int64),
    )
    codec = BlockCodec(spec, {})
    assert_same_block(codec.decode(codec.encode(halved)), halved)


@given(st.integers(0, 400))
@settings(deadline=None)
def test_a_mutilated_block_is_refused(length: int) -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    codec = BlockCodec(spec, {"v": ArraySpec((), "float32")})
    payload = codec.encode(make_block(1, spec, codec.recorded, 3, 2))
    with pytest.raises(ValueError):
        codec.decode(payload[: min(length, len(payload) - 1)])
    with pytest.raises(ValueError):
        codec.decode(np.append(payload, np.uint8(0)))


def test_a_block_of_another_layout_is_refused() -> None:
    wide = EnvSpec("Toy-v0", ArraySpec((4,), "float32"), ArraySpec((), "int64"), 2)
    narrow = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    payload = BlockCodec(wide, {}).encode(make_block(1, wide, {}, 3, 2))
    with pytest.raises(ValueError):
        BlockCodec(narrow, {}).decode(payload)


@pytest.mark.parametrize("lead_steps", [0, 3])
def test_blocks_can_wait_in_a_checkpoint_in_their_order(lead_steps: int) -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    codec = BlockCodec(spec, {"v": ArraySpec((), "float32")}, lead_steps)
    blocks = [make_block(seed, spec, codec.recorded, 2, 2, lead_steps) for seed in range(12)]
    back = codec.unpack(decode_arrays(encode_arrays(codec.pack(blocks))))
    assert len(back) == len(blocks)
    for one, other in zip(back, blocks, strict=True):
        assert_same_block(one, other)


def test_blocks_in_a_checkpoint_have_named_arrays() -> None:
    """The layout of messages may change; what a checkpoint holds is read by later versions."""
    spec = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    codec = BlockCodec(spec, {"v": ArraySpec((), "float32")})
    block = dataclasses.replace(make_block(1, spec, codec.recorded, 2, 2), version=7, restarts=3)
    packed = codec.pack([block])
    np.testing.assert_array_equal(packed["000000/rewards"], block.rewards)
    np.testing.assert_array_equal(packed["000000/recorded/v"], block.recorded["v"])
    assert (packed["000000/version"], packed["000000/restarts"]) == (7, 3)
    wide = dataclasses.replace(spec, observation=ArraySpec((4,), "float32"))
    said = r"observations of a block is float32 \[3, 2, 3\], not float32 \[3, 2, 4\]"
    with pytest.raises(ValueError, match=said):
        BlockCodec(wide, codec.recorded).unpack(packed)
    del packed["000000/simulations"]  # blocks of earlier versions did not count them
    assert codec.unpack(packed)[0].simulations == 0
    del packed["000000/failures"]
    with pytest.raises(KeyError, match="failures"):
        codec.unpack(packed)


def test_a_block_without_a_lead_has_one_that_is_not_known_where_a_run_needs_it() -> None:
    """It waited in a checkpoint that was written before blocks had one."""
    spec = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    block = make_block(1, spec, {}, 2, 2)
    (back,) = BlockCodec(spec, {}, 4).unpack(BlockCodec(spec, {}).pack([block]))
    assert_same_block(dataclasses.replace(back, lead=None), block)
    assert back.lead is not None
    assert np.shape(back.lead.rewards) == (4, 2)
    assert not np.asarray(back.lead.known).any()
    assert_same_block(BlockCodec(spec, {}, 4).decode(BlockCodec(spec, {}, 4).encode(back)), back)
    packed = BlockCodec(spec, {}, 4).pack([back])
    with pytest.raises(ValueError, match=r"lead/observations of a block is float32 \[4, 2, 3\]"):
        BlockCodec(spec, {}, 3).unpack(packed)


# -- named arrays ---------------------------------------------------------------------------------

ARRAYS = st.dictionaries(
    st.text(min_size=1, max_size=12),
    st.sampled_from([*DTYPES, "uint16", "uint32", "uint64", "int16", "float16"]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
    ),
    max_size=5,
)


@given(ARRAYS)
@settings(max_examples=80, deadline=None)
def test_named_arrays_survive(arrays: dict[str, np.ndarray]) -> None:
    payload = encode_arrays(arrays)
    assert_same_arrays(decode_arrays(payload), arrays)
    assert_same_arrays(decode_arrays(np.frombuffer(payload, np.uint8)), arrays)


def test_arrays_in_any_memory_order_survive() -> None:
    plain = np.arange(12.0).reshape(3, 4)
    arrays = {"f": np.asfortranarray(plain), "t": plain.T, "s": plain[::2, ::-1]}
    assert_same_arrays(decode_arrays(encode_arrays(arrays)), arrays)


def test_decoded_arrays_may_be_changed() -> None:
    """An environment that takes its state over and steps on from it changes it in place."""
    decode_arrays(encode_arrays({"grid": np.zeros(3)}))["grid"][0] = 1


# -- joining --------------------------------------------------------------------------------------


@given(runs(), st.integers(1, 4), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_joined_blocks_keep_every_environment(run: Any, count: int, seed: int) -> None:
    spec, recorded, steps, width = run
    blocks = [make_block(seed + i, spec, recorded, steps, width, 2) for i in range(count)]
    joined = concatenate(blocks)
    assert joined.steps == sum(block.steps for block in blocks)
    assert joined.version == min(block.version for block in blocks)
    assert joined.restarts == sum(block.restarts for block in blocks)
    assert joined.failures.tolist() == [row for b in blocks for row in b.failures.tolist()]
    np.testing.assert_allclose(joined.seconds, sum(block.seconds for block in blocks))
    end = 0
    following = joined.next_observations()
    for i, block in enumerate(blocks):
        columns = slice(i * width, (i + 1) * width)
        for name in ("observations", "actions", "rewards", "terminated", "truncated"):
            part = getattr(joined, name)[:, columns]
            np.testing.assert_array_equal(part, getattr(block, name))
        for name, array in block.recorded.items():
            np.testing.assert_array_equal(joined.recorded[name][:, columns], array)
        assert joined.lead is not None and block.lead is not None
        for whole, part in zip(joined.lead, block.lead, strict=True):
            np.testing.assert_array_equal(whole[:, columns], part)
        rows = slice(end, end := end + len(block.episode_returns))
        for name in ("final_observations", "episode_returns", "episode_lengths"):
            np.testing.assert_array_equal(getattr(joined, name)[rows], getattr(block, name))
        np.testing.assert_array_equal(following[:, columns], block.next_observations())
    assert end == len(joined.episode_returns) == joined.ended.sum()
    assert joined.rewards.dtype == np.float32


@given(
    SPECS,
    st.none() | st.integers(1, 9),
    st.lists(st.floats(allow_nan=False), max_size=3).map(tuple),
    st.none() | st.integers(1, 999),
)
def test_env_specs_survive_json(
    array: ArraySpec, n_actions: int | None, low: tuple[float, ...], limit: int | None
) -> None:
    spec = EnvSpec("Toy-v0", array, ArraySpec((), "int64"), n_actions, low, low[::-1], limit)
    assert EnvSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


TOLD = ({"energy": (1.5, 3.0, 0.5, -2.0, 9.0), "stress.0": (1.0, 1.0, 1.0, 1.0, 1.0)}, {})


def test_what_is_told_of_episodes_travels_and_costs_nothing_otherwise() -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    plain, telling = BlockCodec(spec, {}), BlockCodec(spec, {}, info=True)
    block = make_block(1, spec, {}, 4, 2)
    told = dataclasses.replace(block, episode_info=TOLD)
    assert plain.encode(block).tobytes() == telling.encode(block).tobytes()
    for back in (telling.decode(telling.encode(told)), *telling.unpack(telling.pack([told]))):
        assert_same_block(back, told)
    assert plain.pack([block]).keys() == telling.pack([block]).keys()
    with pytest.raises(ValueError, match="layout"):
        plain.decode(telling.encode(told))
    with pytest.raises(ValueError, match="numbers"):
        telling.decode(np.append(telling.encode(told), np.uint8(0)))


def test_the_longest_block_may_tell_all_that_is_kept() -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((3,), "float32"), ArraySpec((), "int64"), 2)
    codec, most = BlockCodec(spec, {}, info=True), float(np.finfo(np.float64).max)
    one = {f"{i:0{LONGEST_NAME}d}": (most,) * 5 for i in range(MOST_NUMBERS)}
    block = dataclasses.replace(make_block(1, spec, {}, 4, 2), episode_info=(one,) * 8)
    plain = dataclasses.replace(block, episode_info=())
    room = codec.max_bytes(4, 2) - BlockCodec(spec, {}).max_bytes(4, 2)
    assert len(codec.encode(block)) - len(codec.encode(plain)) <= room
