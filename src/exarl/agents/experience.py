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

    @property
    def joins_blocks(self) -> bool:
        """Whether the rows of several blocks may come at once, ``joined``."""

    def ready(self, rows: Arrays | None) -> bool:
        """Whether there is something to learn from, once these rows are kept."""

    def add(self, rows: Arrays | None) -> None:
        """Keep the rows of a block that is not followed by updates."""

    def learn(
        self,
        state: TrainState,
        rows: Arrays | None,
        updates: int,
        made: int,
        *,
        joined: bool = False,
    ) -> tuple[TrainState, Metrics]:
        """Keep the rows of a block, or of several that are ``joined``, and make their updates, ``made``
        having been made before.

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

    joins_blocks = False  # a block's updates begin with the policy that the block before made

    def __init__(
        self, algorithm: Algorithm[AlgorithmConfig], update: Update, rng: np.random.Generator
    ) -> None:
        self._algorithm, self._update, self._rng = algorithm, update, rng

    def ready(self, rows: Arrays | None) -> bool:
        return rows is not None

    def add(self, rows: Arrays | None) -> None:
        """Nothing is kept."""

    def learn(
        self,
        state: TrainState,
        rows: Arrays | None,
        updates: int,
        made: int,
        *,
        joined: bool = False,
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
    """A replay in the host's memory. ``prior_share`` rows of a batch are drawn from ``prior``, or all
    while the replay is empty.

    All batches of a block are drawn with the priorities before its first update, and priorities are
    set after its last. ``padded`` makes the updates of blocks that are joined.
    """

    def __init__(
        self,
        algorithm: Algorithm[AlgorithmConfig],
        hyper: Hyper,
        update: Update,
        rng: np.random.Generator,
        batch_size: int,
        padded: Update | None = None,
        prior: Arrays | None = None,
        prior_share: int = 0,
        alone: bool = True,
    ) -> None:
        config = algorithm.config
        assert isinstance(config, OffPolicyConfig)
        self._algorithm, self._config, self._hyper = algorithm, config, hyper
        self._update, self._rng, self._batch_size = update, rng, batch_size
        self._padded, self._alone = padded, alone
        self.replay: PrioritisedReplay | UniformReplay = UniformReplay(config.replay_capacity)
        if config.priority_scale:
            self.replay = PrioritisedReplay(config.replay_capacity, config.priority_scale)
        self._prior, self._prior_share = prior, prior_share
        self._whole = True  # whether this learner contributes to the batches of its team
        self._unrated: tuple[np.ndarray, float | Array] | None = (
            None  # rows and priorities on their way
        )

    @property
    def joins_blocks(self) -> bool:
        return self._padded is not None

    def ready(self, rows: Arrays | None) -> bool:
        return bool(self._prior) or self.replay.size > 0 or count_known(rows) > 0

    def add(self, rows: Arrays | None) -> None:
        self._rate()
        if rows is not None and count_known(rows):
            known = rows.get(KNOWN, slice(None))
            self.replay.add({name: a[known] for name, a in rows.items() if name != KNOWN})

    def learn(
        self,
        state: TrainState,
        rows: Arrays | None,
        updates: int,
        made: int,
        *,
        joined: bool = False,
    ) -> tuple[TrainState, Metrics]:
        self.add(rows)
        self._tell_whether_whole()
        most = self._updates_at_once()
        if updates > most:
            return self._learn_in_parts(state, updates, made, most)
        batches = self.sample(updates, made) if self.replay.size or self._prior else None
        index = batches.pop("index", None) if batches else None
        if joined and updates > 1 and self._padded is not None and batches is not None:
            state, metrics = self._padded(state, padded(batches, updates), updates)
        else:
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
            state, metrics = self._update(state, self._fetched(own), min(size, updates - start))
            found.append(metrics)
        *_, weights = [metrics.pop(WEIGHTS) for metrics in found]
        return state, {**self._with_rated(index, joined(found)), WEIGHTS: weights}

    def _with_rated(self, index: np.ndarray | None, metrics: Metrics) -> Metrics:
        """The metrics without the priorities, which are kept for the rows they belong to."""
        if (priorities := metrics.pop("priority", None)) is not None and index is not None:
            if self._prior:
                priorities = priorities[:, -index.shape[1] :]  # type: ignore[index]
            self._unrated = (index, priorities)
        return metrics

    def _tell_whether_whole(self) -> None:
        """Log when updates begin without this learner's share of a batch, and when it is there."""
        if self._prior or self._whole == (self.replay.size > 0):
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
        """What ``sample`` gives, but for the rows the "places" where they stand, and the "prior_places"
        of those of the prior data."""
        of_prior = 0
        if self._prior:
            of_prior = self._prior_share if self.replay.size else self._batch_size
        own, places = (updates, self._batch_size - of_prior), {}
        if own[1] and isinstance(self.replay, PrioritisedReplay):
            beta = float(beta_after(np, self._config, self._hyper, made))
            places = self.replay.draw(self._rng, *own, beta=beta)
        elif own[1]:
            places = self.replay.draw(self._rng, *own)
        if self._prior and of_prior:
            count = len(next(iter(self._prior.values())))
            places["prior_places"] = self._rng.integers(count, size=(updates, of_prior))
        drawn = self._algorithm.draws(self._rng, updates, self._batch_size)
        return {**places, **{name: np.asarray(array) for name, array in drawn.items()}}

    def _fetched(self, drawn: Arrays) -> Arrays:
        """The rows of the places drawn, those of the prior data first, and all else that was drawn."""
        beside = {name: array for name, array in drawn.items() if not name.endswith("places")}
        rows = self.replay.take(drawn["places"]) if "places" in drawn else {}
        if not self._prior or "prior_places" not in drawn:
            return {**rows, **beside}
        places = drawn["prior_places"]
        before = {name: array.take(places, axis=0) for name, array in self._prior.items()}
        if isinstance(self.replay, PrioritisedReplay):
            before["weight"] = np.ones(places.shape, np.float32)  # all alike
            if "weight" in beside:
                rows["weight"] = beside.pop("weight")
        if rows:
            before = {name: np.concatenate([a, rows[name]], 1) for name, a in before.items()}
        return {**before, **beside}

    def _rate(self) -> None:
        """Set the priorities that the last block's updates computed, which waits for them."""
        if self._unrated is not None:
            (index, unread), self._unrated = self._unrated, None
            priorities = np.asarray(unread)[: len(index)]
            # Where one is not finite training has diverged, which the learning loop reports.
            if np.isfinite(priorities).all() and isinstance(self.replay, PrioritisedReplay):
                self.replay.update(index, priorities)

    def state(self) -> Arrays:
        self._rate()
        return self.replay.state()

    def restore(self, arrays: Arrays) -> None:
        self._unrated = None
        self.replay.restore(arrays)


def padded(batches: Arrays, updates: int) -> Arrays:
    """The batches of some updates [updates, ...], and zeros up to a power of two. Each number of
    batches is compiled by itself, and that of several blocks depends on how many they are."""
    rest = (1 << (updates - 1).bit_length()) - updates
    return {
        name: np.concatenate([array, np.zeros((rest, *array.shape[1:]), array.dtype)])
        for name, array in batches.items()
    }
