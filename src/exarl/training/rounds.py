"""Rounds of the learners: they train together, whoever has a block and whoever has none.

A round opens when any learner has a block (or the run is to stop). Each learner then reports what it
brings, learner 0 adds the reports up and decides, and all act on the same decision. So the number of
updates is the same everywhere, a learner without data takes part with weight 0 and holds nobody up,
and stopping is decided once, for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from exarl.comm.messages import Messages, pack_json, unpack_json
from exarl.comm.wait import wait_for
from exarl.errors import ExarlError
from exarl.types import Block

NUDGE_TAG, OPEN_TAG, REPORT_TAG, DECISION_TAG = 31, 32, 33, 34


@dataclass(frozen=True)
class Report:
    """What one learner, or all of them together, bring to a round."""

    blocks: int = 0
    steps: int = 0
    restarts: int = 0
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    checksum: int | None = None  # of the weights, when learners are compared
    failures: list[list[int]] = field(default_factory=list)  # as in a block
    unlisted: int = 0  # episodes that ended, beside those whose returns are listed

    @classmethod
    def of(cls, block: Block | None, version: int, checksum: int | None = None) -> Report:
        if block is None:
            return cls(checksum=checksum)
        return cls(
            1,
            block.steps,
            block.restarts,
            block.episode_returns.tolist(),
            block.episode_lengths.tolist(),
            block.seconds.tolist(),
            [version - block.version],
            checksum,
            block.failures.tolist(),
        )

    def __add__(self, other: Report) -> Report:
        if self.checksum != other.checksum:
            raise ExarlError("the learners' weights have drifted apart")
        longer, shorter = sorted((self.seconds, other.seconds), key=len, reverse=True)
        shorter = shorter + [0.0] * (len(longer) - len(shorter))
        return Report(
            self.blocks + other.blocks,
            self.steps + other.steps,
            self.restarts + other.restarts,
            self.returns + other.returns,
            self.lengths + other.lengths,
            [a + b for a, b in zip(longer, shorter, strict=True)],
            self.lags + other.lags,
            self.checksum,
            self.failures + other.failures,
            self.unlisted + other.unlisted,
        )


@dataclass(frozen=True)
class Decision:
    """What all learners do next."""

    stop: bool
    interrupted: bool  # by a signal: somebody waits for us to be gone
    checkpoint: bool
    report: Report


class Rounds:
    """The rounds as one learner sees them; ``channel`` joins the learners, None: there is one."""

    def __init__(self, channel: Messages | None) -> None:
        self._channel = channel if channel is not None and channel.size > 1 else None
        self._nudged = False
        self._round = 0

    def wait(
        self, take: Callable[[], Block | None], should_stop: Callable[[], bool]
    ) -> Block | None:
        """Wait until a round opens; this learner's block for it, if it has one."""
        held: list[Block] = []

        def poll() -> bool | None:
            if not held and (block := take()) is not None:
                held.append(block)
            return True if self._opens(bool(held), should_stop) else None

        wait_for(poll)
        self._nudged = False
        return held[0] if held else None

    def decide(self, report: Report, stop: bool, interrupted: bool, checkpoint: bool) -> Decision:
        """Share this learner's report; what learner 0 decides from all of them."""
        channel = self._channel
        self._round += 1
        if channel is None:
            return Decision(stop, interrupted, checkpoint, report)
        if channel.rank:
            channel.send(pack_json(dataclasses.asdict(report)), 0, REPORT_TAG)
            data = unpack_json(channel.receive(0, DECISION_TAG)[1])
            return Decision(**{**data, "report": Report(**data["report"])})
        others = range(1, channel.size)
        channel.send(b"", others, OPEN_TAG)
        for rank in others:
            report = report + Report(**unpack_json(channel.receive(rank, REPORT_TAG)[1]))
        decision = Decision(stop, interrupted, checkpoint, report)
        channel.send(pack_json(dataclasses.asdict(decision)), others, DECISION_TAG)
        return decision

    def _opens(self, ready: bool, should_stop: Callable[[], bool]) -> bool:
        channel = self._channel
        if channel is None:
            return ready or should_stop()
        if channel.rank == 0:
            return self._nudges(channel) or ready or should_stop()
        if ready and not self._nudged:
            self._nudged = True
            channel.post(pack_json(self._round), 0, NUDGE_TAG)
        return channel.poll(0, OPEN_TAG) is not None

    def _nudges(self, channel: Messages) -> bool:
        """Whether another learner has a block for this round; one that was for a round before has
        been trained in that, and would open an empty one."""
        found = False
        while (message := channel.poll(tag=NUDGE_TAG)) is not None:
            found |= unpack_json(message[1]) == self._round
        return found
