"""Rounds in which all learners train together, whether or not each has a block.

A round opens when any learner has a block, or when the run has to stop. Each learner then sends a
report of its block to learner 0, which adds the reports up and decides; all learners act on the same
decision. So all make the same number of updates, a learner without data takes part with weight 0 and
delays no other, and stopping is decided once for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from exarl.comm.messages import Tag, decode, encode
from exarl.comm.transport import Transport
from exarl.comm.waiting import wait_for
from exarl.errors import ExarlError
from exarl.records.metrics import FROM_BLOCKS
from exarl.types import Block, EpisodeInfo


@dataclass(frozen=True)
class Report:
    """What one learner, or all of them together, contribute to a round."""

    blocks: int = 0
    steps: int = 0
    totals: dict[str, int] = field(default_factory=dict)  # of the columns in FROM_BLOCKS
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    checksum: int | None = None  # of the weights, when learners are compared
    failures: list[list[int]] = field(default_factory=list)  # as in a block
    unlisted: int = 0  # further episodes that ended, whose returns are not listed
    info: list[EpisodeInfo] = field(default_factory=list)  # of the last episodes, with log_info

    @classmethod
    def of(cls, block: Block | None, version: int, checksum: int | None = None) -> Report:
        if block is None:
            return cls(checksum=checksum)
        return cls(
            1,
            block.steps,
            {column: count(block) for column, count in FROM_BLOCKS.items()},
            block.episode_returns.tolist(),
            block.episode_lengths.tolist(),
            block.seconds.tolist(),
            [version - block.version],
            checksum,
            block.failures.tolist(),
            info=list(block.episode_info),
        )

    def __add__(self, other: Report) -> Report:
        if self.checksum != other.checksum:
            raise ExarlError("the learners' weights have drifted apart")
        longer, shorter = sorted((self.seconds, other.seconds), key=len, reverse=True)
        shorter = shorter + [0.0] * (len(longer) - len(shorter))
        return Report(
            self.blocks + other.blocks,
            self.steps + other.steps,
            {c: self.totals.get(c, 0) + other.totals.get(c, 0) for c in FROM_BLOCKS},
            self.returns + other.returns,
            self.lengths + other.lengths,
            [a + b for a, b in zip(longer, shorter, strict=True)],
            self.lags + other.lags,
            self.checksum,
            self.failures + other.failures,
            self.unlisted + other.unlisted,
            self.info + other.info,
        )


@dataclass(frozen=True)
class Decision:
    """What all learners do next."""

    stop: bool
    interrupted: bool  # by a signal, whose sender waits for the end
    checkpoint: bool
    report: Report


class Rounds:
    """The rounds as one learner sees them; ``channel`` connects the learners, None: there is one."""

    def __init__(self, channel: Transport | None) -> None:
        self._channel = channel if channel is not None and channel.size > 1 else None
        self._nudged = False
        self._round = 0

    def wait(
        self, take: Callable[[], Block | None], should_stop: Callable[[], bool]
    ) -> Block | None:
        """Wait until a round opens. Return this learner's block for it, or None if it has none."""
        held: list[Block] = []

        def poll() -> bool | None:
            if not held and (block := take()) is not None:
                held.append(block)
            return True if self._opens(bool(held), should_stop) else None

        wait_for(poll)
        self._nudged = False
        return held[0] if held else None

    def decide(self, report: Report, stop: bool, interrupted: bool, checkpoint: bool) -> Decision:
        """Share this learner's report. Return what learner 0 decides from all reports."""
        channel = self._channel
        self._round += 1
        if channel is None:
            return Decision(stop, interrupted, checkpoint, report)
        if channel.rank:
            channel.send(encode(report), 0, Tag.ROUND_REPORT)
            return decode(channel.receive(0, Tag.DECISION)[1], Decision)[0]
        others = range(1, channel.size)
        channel.send(b"", others, Tag.OPEN)
        for rank in others:
            report = report + decode(channel.receive(rank, Tag.ROUND_REPORT)[1], Report)[0]
        decision = Decision(stop, interrupted, checkpoint, report)
        channel.send(encode(decision), others, Tag.DECISION)
        return decision

    def _opens(self, ready: bool, should_stop: Callable[[], bool]) -> bool:
        channel = self._channel
        if channel is None:
            return ready or should_stop()
        if channel.rank == 0:
            return self._nudges(channel) or ready or should_stop()
        if ready and not self._nudged:
            self._nudged = True
            channel.post(encode(self._round), 0, Tag.NUDGE)
        return channel.poll(0, Tag.OPEN) is not None

    def _nudges(self, channel: Transport) -> bool:
        """Whether another learner has a block for this round. A nudge for an earlier round is ignored:
        its block has been trained in that round."""
        ready = False
        while (message := channel.poll(tag=Tag.NUDGE)) is not None:
            ready |= decode(message[1], int)[0] == self._round
        return ready
