"""Where a learner's updates get their batches from: each block once, or a replay on the host."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Protocol

import numpy as np

from exarl.agents.algorithm import Algorithm, AlgorithmConfig, Hyper, TrainState
from exarl.agents.blocks import KNOWN
from exarl.agents.offpolicy import OffPolicyConfig, beta_after
from exarl.replay import PrioritisedReplay, UniformReplay
from exarl.types import Array, Arrays, Batch, Metrics

log = logging.getLogger(__name__)

Update = Callable[[TrainState, Batch | None, int], tuple[TrainState, Metrics]]


BATCHES_BYTES = 1 << 26
"""About how much memory the batches of a block's updates take at once."""


class Experience(Protocol):
    """What an agent has learned and will learn from."""

    def ready(self, rows: Arrays | None) -> bool:
        """Whether there is something to learn from, once these rows are kept."""

    def add(self, rows: Arrays | None) -> None:
        """Keep the rows of a block that is not followed by updates."""

    def learn(
        self, state: TrainState, rows: Arrays | None, updates: int, made: int
    ) -> tuple[TrainState, Metrics]:
        """Keep the rows of a block and make its updates, ``made`` having been made before.

        A learner of a team that got no block has no rows. The device may still be computing when
        this returns.
        """

    def state(self) -> Arrays:
        """Everything needed to continue, as named arrays."""

    def restore(self, arrays: Arrays) -> None:
        """Take over what ``state`` gave."""


def count_known(rows: Arrays | None) -> int:
    """How many rows there are to keep."""
    if rows is None:
        return 0
    return int(rows[KNOWN].sum()) if KNOWN in rows else len(next(iter(rows.values())))


class FreshBlocks:
    """Every block is learned from once, in random orders if the algorithm asks for some."""

    def __init__(
        self, algorithm: Algorithm[AlgorithmConfig], update: Update, rng: np.random.Generator
    ) -> None:
        self._algorithm, self._update, self._rng = algorithm, update, rng

    def ready(self, rows: Arrays | None) -> bool:
        return rows is not None

    def add(self, rows: Arrays | None) -> None:
        """Nothing is kept."""

    def learn(
        self, state: TrainState, rows: Arrays | None, updates: int, made: int
    ) -> tuple[TrainState, Metrics]:
        if rows is not None:
            passes, count = self._algorithm.passes(rows)
            if passes:
                orders = np.stack([self._rng.permutation(count) for _ in range(passes)])
                index = self._algorithm.split(orders, updates)
                rows = {**rows, "index": np.asarray(index, np.int32)}
        return self._update(state, rows, updates)

    def state(self) -> Arrays:
        return {}

    def restore(self, arrays: Arrays) -> None:
        """There is nothing to restore."""


class HostReplay:
    """A replay in the host's memory.

    All batches of a block are drawn with the priorities before its first update, and priorities are
    set after its last.
    """

    def __init__(
        self,
        algorithm: Algorithm[AlgorithmConfig],
        hyper: Hyper,
        update: Update,
        rng: np.random.Generator,
        batch_size: int,
        alone: bool = True,
    ) -> None:
        config = algorithm.config
        assert isinstance(config, OffPolicyConfig)
        self._algorithm, self._config, self._hyper = algorithm, config, hyper
        self._update, self._rng, self._batch_size = update, rng, batch_size
        self._alone = alone
        self.replay: PrioritisedReplay | UniformReplay = UniformReplay(config.replay_capacity)
        if config.priority_scale:
            self.replay = PrioritisedReplay(config.replay_capacity, config.priority_scale)
        self._whole = True  # whether this learner contributes to the batches of its team
        self._unrated: tuple[np.ndarray, float | Array] | None = (
            None  # rows and priorities on their way
        )

    def ready(self, rows: Arrays | None) -> bool:
        return self.replay.size > 0 or count_known(rows) > 0

    def add(self, rows: Arrays | None) -> None:
        self._rate()
        if rows is not None and count_known(rows):
            known = rows.get(KNOWN, slice(None))
            self.replay.add({name: a[known] for name, a in rows.items() if name != KNOWN})

    def learn(
        self, state: TrainState, rows: Arrays | None, updates: int, made: int
    ) -> tuple[TrainState, Metrics]:
        self.add(rows)
        self._tell_whether_whole()
        most = self._updates_at_once()
        if updates > most:
            return self._learn_in_parts(state, updates, made, most)
        batches = self.sample(updates, made) if self.replay.size else None
        index = batches.pop("index", None) if batches else None
        state, metrics = self._update(state, batches, updates)
        return state, self._with_rated(index, metrics)

    def _updates_at_once(self) -> int:
        """How many updates' batches may be in memory together; for the learners of a team, which would
        have to agree, all."""
        if not self._alone or not self.replay.size:
            return sys.maxsize
        return max(1, BATCHES_BYTES // (self._batch_size * self.replay.row_bytes))

    def _learn_in_parts(
        self, state: TrainState, updates: int, made: int, most: int
    ) -> tuple[TrainState, Metrics]:
        """The same updates in parts of about equal size, whose rows are fetched one part at a time."""
        from exarl.agents.engine import WEIGHTS
        from exarl.agents.updates import joined

        drawn, parts = self.draw(updates, made), -(-updates // most)
        index, size = drawn.pop("index", None), -(-updates // parts)
        found: list[Metrics] = []
        for start in range(0, updates, size):
            if len(found) > 1:  # at most two parts are in memory
                np.asarray(next(iter(found[-2].values())))
            own = {name: array[start : start + size] for name, array in drawn.items()}
            count = len(own["places"])
            state, metrics = self._update(state, self._fetched(own), count)
            found.append(metrics)
        *_, weights = [metrics.pop(WEIGHTS) for metrics in found]
        return state, {**self._with_rated(index, joined(found)), WEIGHTS: weights}

    def _with_rated(self, index: np.ndarray | None, metrics: Metrics) -> Metrics:
        """The metrics without the priorities, which are kept for the rows they belong to."""
        if (priorities := metrics.pop("priority", None)) is not None and index is not None:
            self._unrated = (index, priorities)
        return metrics

    def _tell_whether_whole(self) -> None:
        """Log when updates begin without this learner's share of a batch, and when it is there."""
        if self._whole == (self.replay.size > 0):
            return
        self._whole = not self._whole
        if self._whole:
            log.info("this learner has data now: batches are whole again")
        else:
            share = f"{self._batch_size} of {self._config.batch_size} transitions"
            log.warning("this learner has no data yet: batches lack its share, %s", share)

    def sample(self, updates: int, made: int) -> Arrays:
        """The batches of all updates of a block, [updates, batch, ...]."""
        return self._fetched(self.draw(updates, made))

    def draw(self, updates: int, made: int) -> Arrays:
        """What ``sample`` gives, but for the rows the "places" where they stand."""
        shape = (updates, self._batch_size)
        if isinstance(self.replay, PrioritisedReplay):
            beta = float(beta_after(np, self._config, self._hyper, made))
            places = self.replay.draw(self._rng, *shape, beta=beta)
        else:
            places = self.replay.draw(self._rng, *shape)
        drawn = self._algorithm.draws(self._rng, *shape)
        return {**places, **{name: np.asarray(array) for name, array in drawn.items()}}

    def _fetched(self, drawn: Arrays) -> Arrays:
        """The rows of the places drawn, and all else that was."""
        beside = {name: array for name, array in drawn.items() if name != "places"}
        return {**self.replay.take(drawn["places"]), **beside}

    def _rate(self) -> None:
        """Set the priorities that the last block's updates computed, which waits for them."""
        if self._unrated is not None:
            (index, unread), self._unrated = self._unrated, None
            priorities = np.asarray(unread)
            # Where one is not finite training has diverged, which the learning loop reports.
            if np.isfinite(priorities).all() and isinstance(self.replay, PrioritisedReplay):
                self.replay.update(index, priorities)

    def state(self) -> Arrays:
        self._rate()
        return self.replay.state()

    def restore(self, arrays: Arrays) -> None:
        self._unrated = None
        self.replay.restore(arrays)
