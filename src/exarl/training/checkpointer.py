"""Checkpoints of an asynchronous run: learner 0 joins the parts of all learners."""

from __future__ import annotations

import dataclasses
import json
import logging
from dataclasses import dataclass

import numpy as np

from exarl.comm.codec import BlockCodec, decode_arrays, encode_arrays
from exarl.comm.messages import PartOfCheckpoint, Tag, decode, encode
from exarl.comm.team import LearnerTeam
from exarl.comm.waiting import wait_for
from exarl.records.checkpoint import Checkpoint
from exarl.training.actors import BlockSource, Tally
from exarl.training.loop import LearningLoop
from exarl.training.snapshot import Snapshot
from exarl.types import Arrays, Block

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """One learner's part of a checkpoint: its draft, its actors' environments, blocks under way."""

    sequence: int
    draft: Checkpoint
    actors: Snapshot

    def encode(self, codec: BlockCodec) -> bytes:
        numbers = json.dumps(self.draft.numbers)
        groups = {"agent": self.draft.arrays["agent"], "envs": self.actors.envs}
        groups["pending"] = codec.pack(self.actors.pending)
        arrays = {f"{g}/{name}": a for g, named in groups.items() for name, a in named.items()}
        head = PartOfCheckpoint(self.sequence, numbers, self.actors.silent)
        return encode(head, encode_arrays(arrays))

    @classmethod
    def decode(cls, payload: np.ndarray, codec: BlockCodec) -> Part:
        head, body = decode(payload, PartOfCheckpoint)
        groups: dict[str, Arrays] = {"agent": {}, "envs": {}, "pending": {}}
        for name, array in decode_arrays(body).items():
            group, _, inner = name.partition("/")
            groups[group][inner] = array
        draft = Checkpoint({"agent": groups["agent"]}, json.loads(head.numbers))
        actors = Snapshot(groups["envs"], codec.unpack(groups["pending"]), head.silent)
        return cls(head.sequence, draft, actors)


class Checkpointer:
    """Collects and writes a checkpoint while training goes on; ``idle`` while there is none to do."""

    def __init__(
        self, loop: LearningLoop, codec: BlockCodec, team: LearnerTeam | None, source: BlockSource
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
        """Start a checkpoint of this moment. ``backlog`` are blocks from before a resume that have not
        been trained yet."""
        self.idle = False
        self._sequence += 1
        self._draft, self._parts, self._backlog = self._loop.draft(), {}, backlog
        self._source.ask_states()

    def work(self) -> None:
        """Take the next step of the checkpoint under way, if one is possible now."""
        if self.idle:
            return
        if self._draft is not None and (snapshot := self._source.states()) is not None:
            pending = [*self._backlog, *snapshot.pending]
            snapshot = dataclasses.replace(snapshot, pending=pending)
            self._hand_in(Part(self._sequence, self._draft, snapshot))
        self._collect()

    def finish(self, actors: Snapshot) -> None:
        """Write the last checkpoint, after all actors have stopped."""
        self.idle = False
        self._sequence += 1
        self._parts = {}
        self._hand_in(Part(self._sequence, self._loop.draft(), actors))

        def written() -> bool | None:
            self._collect()
            return True if self.idle else None

        wait_for(written)

    def add_up(self, tally: Tally) -> Tally:
        """On learner 0 the tally of all learners, on the others their own."""
        if self._channel is not None and self._index:
            self._channel.send(encode(tally), 0, Tag.TALLY)
        elif self._channel is not None:
            for rank in range(1, self._size):
                tally = tally + decode(self._channel.receive(rank, Tag.TALLY)[1], Tally)[0]
        return tally

    def _hand_in(self, part: Part) -> None:
        self._draft = None
        if self._index:
            assert self._channel is not None
            self._channel.post(part.encode(self._codec), 0, Tag.PART)
            self.idle = True
        else:
            self._parts[0] = part

    def _collect(self) -> None:
        if self._channel is not None and not self._index:
            while (found := self._channel.poll(tag=Tag.PART)) is not None:
                part = Part.decode(found[1], self._codec)
                if (
                    part.sequence == self._sequence
                ):  # else of a checkpoint that the end of the run overtook
                    self._parts[found[0]] = part
        if not self._index and len(self._parts) == self._size:
            self._write()

    def _write(self) -> None:
        parts = [self._parts[index] for index in range(self._size)]
        envs = {name: array for part in parts for name, array in part.actors.envs.items()}
        pending = [block for part in parts for block in part.actors.pending]
        silent = [actor for part in parts for actor in part.actors.silent]
        arrays = {agent_stem(i): part.draft.arrays["agent"] for i, part in enumerate(parts)}
        arrays |= {n: group for n, group in parts[0].draft.arrays.items() if n != "agent"}
        numbers = dict(parts[0].draft.numbers)
        if len(parts) > 1:
            numbers["agents"] = [part.draft.numbers["agent"] for part in parts]
        if silent:
            numbers["silent_actors"] = silent
        self._warn(silent)
        self._loop.write(Checkpoint(arrays, numbers), envs, self._codec.pack(pending))
        self._parts = {}
        self.idle = True

    def _warn(self, silent: list[int]) -> None:
        """Log which actors have not answered, once for as long as they are the same."""
        if silent and silent != self._silent:
            log.warning(
                "no answer from actor %s: checkpoints keep the last known state of its environments",
                " and actor ".join(map(str, silent)),
            )
        self._silent = silent


def agent_stem(index: int) -> str:
    """The name of the file with one learner's agent in a checkpoint."""
    return f"agent_{index:04d}" if index else "agent"


def part_for(checkpoint: Checkpoint, index: int) -> Checkpoint:
    """The checkpoint as learner ``index`` restores it, written by any number of learners.

    A learner beyond that number starts with another one's experience but a random stream of its own.
    """
    numbers = checkpoint.numbers
    agents = numbers.get("agents", [numbers["agent"]])
    origin = index % len(agents)
    own = dict(agents[origin])
    if origin != index:
        own.pop("rng", None)
    arrays = {**checkpoint.arrays, "agent": checkpoint.arrays[agent_stem(origin)]}
    return dataclasses.replace(checkpoint, arrays=arrays, numbers={**numbers, "agent": own})
