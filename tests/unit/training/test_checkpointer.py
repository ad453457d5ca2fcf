"""Parts of a checkpoint: one learner's through a message, and which one a learner restores."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.learning import assert_same_block, discrete_spec, random_block

from exarl.comm.codec import BlockCodec
from exarl.records.checkpoint import Checkpoint
from exarl.training.checkpointer import Part, agent_stem, part_for
from exarl.training.snapshot import Snapshot


def test_a_part_comes_out_as_it_went_in() -> None:
    spec = discrete_spec()
    codec = BlockCodec(spec, {})
    blocks = [dataclasses.replace(random_block(spec, seed), version=seed) for seed in range(12)]
    draft = Checkpoint(
        {"agent": {"weights": np.arange(3.0), "a/b": np.eye(2)}}, {"agent": {"x": 1}}
    )
    part = Part(5, draft, Snapshot({"0/number": np.array(4)}, blocks, [3, 1]))
    found = Part.decode(np.frombuffer(part.encode(codec), np.uint8), codec)
    assert found.sequence == 5
    assert found.draft.numbers == draft.numbers
    assert found.draft.arrays["agent"].keys() == draft.arrays["agent"].keys()
    for name, array in draft.arrays["agent"].items():
        np.testing.assert_array_equal(found.draft.arrays["agent"][name], array)
    assert found.actors.envs["0/number"] == 4
    assert found.actors.silent == [3, 1]
    assert len(found.actors.pending) == 12
    for one, other in zip(found.actors.pending, blocks, strict=True):
        assert_same_block(one, other)


@pytest.mark.parametrize(("index", "origin"), [(0, 0), (1, 1), (2, 0), (3, 1)])
def test_every_learner_finds_an_agent_whatever_number_wrote_them(index: int, origin: int) -> None:
    arrays = {agent_stem(i): {"weights": np.array([i])} for i in range(2)}
    agents = [{"steps": i, "rng": i} for i in range(2)]
    written = Checkpoint(arrays, {"agent": agents[0], "agents": agents, "counters": 7})
    found = part_for(written, index)
    assert found.arrays["agent"]["weights"].tolist() == [origin]
    assert found.numbers["counters"] == 7
    assert found.numbers["agent"]["steps"] == origin
    assert ("rng" in found.numbers["agent"]) is (index == origin), "no two have one stream"
    assert agents[origin]["rng"] == origin, "what was read is not changed"


def test_a_checkpoint_of_one_learner_has_one_agent() -> None:
    written = Checkpoint({"agent": {"weights": np.array([9])}}, {"agent": {"steps": 3, "rng": 1}})
    assert part_for(written, 0).numbers["agent"] == {"steps": 3, "rng": 1}
    assert part_for(written, 1).numbers["agent"] == {"steps": 3}
    assert [agent_stem(index) for index in (0, 1, 12)] == ["agent", "agent_0001", "agent_0012"]
