"""How many of the blocks that wait a learner trains at once."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Sequence

from exarl.config import LearnerConfig
from exarl.records.stops import first_met
from exarl.training.loop import LearningLoop
from exarl.training.rounds import Report
from exarl.types import Block, concatenate

MOST_S = 0.02
"""Seconds that blocks trained at once may take. A call costs the host about 0.3 ms, whatever is in it:
where blocks take longer nothing is gained, and weights would be late."""
FIRST_ALONE = 2000
"""Blocks that have to wait before any are trained at once, so that no short run compiles for it."""
REMEMBERED = 8

BLOCKS_TOGETHER = (
    "most blocks that one learner trains in one call where several wait; 1: always one by one"
)
"""What the parameter ``blocks_together`` of the workflows means."""


class Gatherer:
    """Gathers the blocks that a learner without others trains at once, at most ``most``.

    How many they are follows from how long they take. Between two calls of ``trained`` lies the time
    of a block, where none is waited for. The shortest of the last few is taken, since the others may
    have compiled or waited.
    """

    def __init__(
        self,
        loop: LearningLoop,
        config: LearnerConfig,
        most: int,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loop, self._config, self._limit, self._now = loop, config, most, now
        self._waited = 0
        self._times: deque[float] = deque(maxlen=REMEMBERED)
        self._last: float | None = None

    def waited(self) -> None:
        """A block had come before it could be trained."""
        self._waited += 1

    def trained(self, blocks: int) -> None:
        """This many blocks have been handed to the agent."""
        now = self._now()
        if self._last is not None and blocks:
            self._times.append((now - self._last) / blocks)
        self._last = now

    @property
    def most(self) -> int:
        """How many blocks may be trained at once now."""
        alone = self._limit == 1 or self._waited < FIRST_ALONE or not self._times
        if alone or not self._loop.agent.joins_blocks():
            return 1
        return max(1, min(self._limit, int(MOST_S / max(min(self._times), 1e-9))))

    def gather(
        self, first: Block, take: Callable[[], Block | None], backlog: deque[Block]
    ) -> list[Block]:
        """A block, and those that ``take`` gives now and are to be trained with it: no more than the
        run needs to reach its limit. One of another form goes to the ``backlog``."""
        blocks, most = [first], self.most
        while len(blocks) < most and not self._ended_by(blocks):
            if (another := take()) is None:
                break
            if another.rewards.shape != first.rewards.shape:
                backlog.appendleft(another)  # acted before a resume with other parameters
                break
            blocks.append(another)
        return blocks

    def _ended_by(self, blocks: Sequence[Block]) -> bool:
        """Whether a limit on steps or episodes is reached once these blocks are trained."""
        counters = self._loop.counters
        reached = {
            "timesteps_total": counters.steps + len(blocks) * blocks[0].steps,
            "episodes_total": counters.episodes + sum(len(b.episode_returns) for b in blocks),
        }
        return first_met(self._config, reached.get) is not None


def joined(
    blocks: Sequence[Block], version: int, checksum: int | None
) -> tuple[Block | None, Report]:
    """Blocks that are trained at once as one block, and the report of all of them."""
    if not blocks:
        return None, Report(checksum=checksum)
    block = concatenate(blocks)
    report = Report.of(block, version, checksum)
    lags = [version - block.version for block in blocks]
    return block, dataclasses.replace(report, blocks=len(blocks), lags=lags)
