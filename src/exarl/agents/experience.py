"""Where a learner's updates get their batches from: each block once, or a replay on the host."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from exarl.agents.algorithm import Algorithm, AlgorithmConfig, Hyper, TrainState
from exarl.agents.base import Team
from exarl.agents.blocks import KNOWN
from exarl.agents.offpolicy import OffPolicyConfig, beta_after, share_of
from exarl.replay import PrioritisedReplay, UniformReplay
from exarl.types import Array, Arrays, Batch, Metrics

if TYPE_CHECKING:
    from exarl.agents.compiled import CompileObserver
    from exarl.agents.engine import Engine

log = logging.getLogger(__name__)

Update = Callable[[TrainState, Batch | None, int], tuple[TrainState, Metrics]]


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


def no_share(batch_size: int) -> int:
    """Rows of a batch that come from prior data where there is none."""
    return 0


def experience_for(
    engine: Engine,
    hyper: Hyper,
    rng: np.random.Generator,
    team: Team | None,
    acting: Callable[[TrainState], Sequence[Array]],
    observer: CompileObserver,
    prior: Arrays | None = None,
    share: Callable[[int], int] = no_share,
) -> Experience:
    """What an agent learns from: blocks, or a replay on the host or on the device, beside which
    ``share`` of a batch's size are rows of ``prior``."""
    from exarl.agents.updates import compile_updates, on_devices

    algorithm = engine.algorithm
    cfg = algorithm.config
    if isinstance(cfg, OffPolicyConfig) and cfg.replay_device == "device":
        from exarl.agents.device_experience import DeviceReplay

        seed = int(rng.integers(2**32))
        of_prior = share(cfg.batch_size)
        return DeviceReplay(engine, hyper, acting, observer, seed, prior, of_prior)
    index, learners = (team.index, team.size) if team else (0, 1)
    size, weight = 0, 1.0
    if isinstance(cfg, OffPolicyConfig):
        size = share_of(cfg.batch_size, index, learners)
        weight = size * learners / cfg.batch_size  # 1 unless there is a remainder
    update = compile_updates(engine, hyper, team, acting, observer, weight)
    if not isinstance(cfg, OffPolicyConfig):
        return FreshBlocks(algorithm, update, rng)
    if cfg.learner_devices > 1:
        update = on_devices(update, cfg.learner_devices)
    return HostReplay(algorithm, hyper, update, rng, size, prior, share(size))


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
    """A replay in the host's memory. ``prior_share`` rows of a batch are drawn from ``prior``, or all
    while the replay is empty.

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
        prior: Arrays | None = None,
        prior_share: int = 0,
    ) -> None:
        config = algorithm.config
        assert isinstance(config, OffPolicyConfig)
        self._algorithm, self._config, self._hyper = algorithm, config, hyper
        self._update, self._rng, self._batch_size = update, rng, batch_size
        self.replay: PrioritisedReplay | UniformReplay = UniformReplay(config.replay_capacity)
        if config.priority_scale:
            self.replay = PrioritisedReplay(config.replay_capacity, config.priority_scale)
        self._prior, self._prior_share = prior, prior_share
        self._whole = True  # whether this learner contributes to the batches of its team
        self._unrated: tuple[np.ndarray, float | Array] | None = (
            None  # rows and priorities on their way
        )

    def ready(self, rows: Arrays | None) -> bool:
        return bool(self._prior) or self.replay.size > 0 or count_known(rows) > 0

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
        batches = self.sample(updates, made) if self.replay.size or self._prior else None
        index = batches.pop("index", None) if batches else None
        state, metrics = self._update(state, batches, updates)
        if (priorities := metrics.pop("priority", None)) is not None and index is not None:
            if self._prior:
                priorities = priorities[:, -index.shape[1] :]  # type: ignore[index]
            self._unrated = (index, priorities)
        return state, metrics

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
        of_prior = 0
        if self._prior:
            of_prior = self._prior_share if self.replay.size else self._batch_size
        own, batches = (updates, self._batch_size - of_prior), {}
        if own[1] and isinstance(self.replay, PrioritisedReplay):
            beta = float(beta_after(np, self._config, self._hyper, made))
            batches = self.replay.sample(self._rng, *own, beta=beta)
        elif own[1]:
            batches = self.replay.sample(self._rng, *own)
        if of_prior:
            batches = self._joined(batches, (updates, of_prior))
        drawn = self._algorithm.draws(self._rng, updates, self._batch_size)
        return {**batches, **{name: np.asarray(array) for name, array in drawn.items()}}

    def _joined(self, own: Arrays, shape: tuple[int, int]) -> Arrays:
        """Batches with rows of the prior data, all alike, before the replay's own."""
        assert self._prior
        places = self._rng.integers(len(next(iter(self._prior.values()))), size=shape)
        rows = {name: array.take(places, axis=0) for name, array in self._prior.items()}
        if isinstance(self.replay, PrioritisedReplay):
            rows["weight"] = np.ones(shape, np.float32)
        index = {"index": own["index"]} if "index" in own else {}
        if own:
            rows = {name: np.concatenate([a, own[name]], 1) for name, a in rows.items()}
        return {**rows, **index}

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
