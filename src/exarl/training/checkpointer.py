"""Checkpoints of an asynchronous run: each learner's part, put together by learner 0."""

from __future__ import annotations

import dataclasses
import json
import logging
from dataclasses import dataclass

import numpy as np

from exarl.comm.codec import BlockCodec, decode_arrays, encode_arrays
from exarl.comm.messages import pack_json, unpack_json
from exarl.comm.team import LearnerTeam
from exarl.comm.wait import wait_for
from exarl.records.checkpoint import Checkpoint
from exarl.training.actors import Source, Tally
from exarl.training.loop import LearningLoop
from exarl.training.snapshot import Snapshot
from exarl.types import Arrays, Block

log = logging.getLogger(__name__)

PART_TAG, TALLY_TAG = 41, 42


@dataclass(frozen=True)
class Part:
    """One learner's part of a checkpoint: its draft, its actors' environments, blocks under way."""

    sequence: int
    draft: Checkpoint
    actors: Snapshot

    def encode(self, codec: BlockCodec) -> bytes:
        numbers = json.dumps([self.sequence, self.draft.numbers, self.actors.silent]).encode()
        groups = {"agent": self.draft.arrays["agent"], "envs": self.actors.envs}
        groups["pending"] = codec.pack(self.actors.pending)
        arrays = {f"{g}/{name}": a for g, named in groups.items() for name, a in named.items()}
        return encode_arrays({**arrays, "numbers": np.frombuffer(numbers, np.uint8)})

    @classmethod
    def decode(cls, payload: np.ndarray, codec: BlockCodec) -> Part:
        arrays = decode_arrays(payload)
        sequence, numbers, silent = json.loads(arrays.pop("numbers").tobytes())
        groups: dict[str, Arrays] = {"agent": {}, "envs": {}, "pending": {}}
        for name, array in arrays.items():
            group, _, inner = name.partition("/")
            groups[group][inner] = array
        draft = Checkpoint({"agent": groups["agent"]}, numbers)
        actors = Snapshot(groups["envs"], codec.unpack(groups["pending"]), silent)
        return cls(sequence, draft, actors)


class Keeper:
    """Sees a checkpoint through while training goes on."""

    def __init__(
        self, loop: LearningLoop, codec: BlockCodec, team: LearnerTeam | None, source: Source
    ) -> None:
        self._loop = loop
        self._codec = codec
        self._source = source
        self._channel = team.channel if team else None
        self._index = team.index if team else 0
        self._size = team.size if team else 1
        self._draft: Checkpoint | None = None
        self._backlog: list[Block] = []
        self._silent: list[int] = []
        self._parts: dict[int, Part] = {}
        self._sequence = 0
        self.idle = True

    def begin(self, backlog: list[Block]) -> None:
        """Start a checkpoint of this moment; ``backlog`` are blocks of an earlier run that have not
        been trained yet."""
        self.idle = False
        self._sequence += 1
        self._draft, self._parts, self._backlog = self._loop.draft(), {}, backlog
        self._source.ask_states()

    def work(self) -> None:
        """Do what can be done now for the checkpoint under way."""
        if self.idle:
            return
        if self._draft is not None and (found := self._source.states()) is not None:
            found = dataclasses.replace(found, pending=[*self._backlog, *found.pending])
            self._hand_in(Part(self._sequence, self._draft, found))
        self._collect()

    def finish(self, actors: Snapshot) -> None:
        """The last checkpoint, when nothing moves any more."""
        self.idle = False
        self._sequence += 1
        self._parts = {}
        self._hand_in(Part(self._sequence, self._loop.draft(), actors))

        def written() -> bool | None:
            self._collect()
            return True if self.idle else None

        wait_for(written)

    def close_books(self, tally: Tally) -> int:
        """Add up what became of the blocks; the number of actors that did not answer."""
        total = tally
        if self._channel is not None and self._index:
            self._channel.send(pack_json(tally.to_json()), 0, TALLY_TAG)
        elif self._channel is not None:
            for rank in range(1, self._size):
                data = unpack_json(self._channel.receive(rank, TALLY_TAG)[1])
                total = total + Tally(**data)
        counts = total.to_json()
        missing = counts.pop("missing")
        self._loop.balance(**counts)
        return missing

    def _hand_in(self, part: Part) -> None:
        self._draft = None
        if self._index:
            assert self._channel is not None
            self._channel.post(part.encode(self._codec), 0, PART_TAG)
            self.idle = True
        else:
            self._parts[0] = part

    def _collect(self) -> None:
        if self._channel is not None and not self._index:
            while (found := self._channel.poll(tag=PART_TAG)) is not None:
                part = Part.decode(found[1], self._codec)
                if part.sequence == self._sequence:  # else of a checkpoint the end overtook
                    self._parts[found[0]] = part
        if not self._index and len(self._parts) == self._size:
            self._write()

    def _write(self) -> None:
        parts = [self._parts[index] for index in range(self._size)]
        envs = {name: array for part in parts for name, array in part.actors.envs.items()}
        pending = [block for part in parts for block in part.actors.pending]
        silent = [actor for part in parts for actor in part.actors.silent]
        arrays = {agent_stem(i): part.draft.arrays["agent"] for i, part in enumerate(parts)}
        numbers = dict(parts[0].draft.numbers)
        if len(parts) > 1:
            numbers["agents"] = [part.draft.numbers["agent"] for part in parts]
        if silent:
            numbers["silent_actors"] = silent
        self._tell(silent)
        self._loop.write(Checkpoint(arrays, numbers), envs, self._codec.pack(pending))
        self._parts = {}
        self.idle = True

    def _tell(self, silent: list[int]) -> None:
        """Say which actors a checkpoint goes without, once for as long as they are silent."""
        if silent and silent != self._silent:
            log.warning(
                "no answer from actor %s: checkpoints keep the last known state of its environments",
                " and actor ".join(map(str, silent)),
            )
        self._silent = silent


def agent_stem(index: int) -> str:
    """The file of one learner's agent within a checkpoint."""
    return f"agent_{index:04d}" if index else "agent"


def part_for(checkpoint: Checkpoint, index: int) -> Checkpoint:
    """The checkpoint as learner ``index`` restores it, whatever number of learners wrote it.

    A learner beyond that number starts with another one's experience but a random stream of its own.
    """
    numbers = checkpoint.numbers
    agents = numbers.get("agents", [numbers["agent"]])
    origin = index % len(agents)
    own = dict(agents[origin])
    if origin != index:
        own.pop("rng", None)
    arrays = {**checkpoint.arrays, "agent": checkpoint.arrays[agent_stem(origin)]}
    return Checkpoint(arrays, {**numbers, "agent": own})
