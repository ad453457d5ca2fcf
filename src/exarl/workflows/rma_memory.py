"""The shared memory of a one-sided run, and its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from exarl.comm.board import Board
from exarl.comm.pool import SlotPool
from exarl.comm.window import WORD, Window
from exarl.config import param
from exarl.errors import ConfigError
from exarl.training.process import RunProcess
from exarl.workflows.lagging_loops import LaggingConfig


@dataclass(frozen=True)
class RmaConfig(LaggingConfig):
    """Parameters of the one-sided workflow."""

    structure: Literal["queue", "stack", "buffer"] = param(
        "queue",
        "queue: oldest block first; stack: newest first; buffer: the newest, repeatedly",
    )
    location: Literal["distributed", "central"] = param(
        "distributed", "where blocks wait: on each actor, or on its learner"
    )
    slots: int = param(4, "blocks that can wait in each place", ge=1, le=1024)
    when_full: Literal["wait", "overwrite"] = param(
        "wait",
        "whether an actor without room waits, or overwrites the oldest block (which is counted)",
    )
    window_selection: Literal["assigned", "random"] = param(
        "assigned",
        "whose blocks a learner takes: its own actors' first, or those of all actors alike",
    )
    probe: bool = param(
        True, "at the start, measure whether one-sided access works; if not, use messages instead"
    )

    def __post_init__(self) -> None:
        # Pacing waits until blocks under way are trained; a buffer skips all but the newest.
        if self.structure == "buffer" and self.max_policy_lag is not None:
            raise ConfigError("max_policy_lag needs structure queue or stack, not buffer")


class Shared:
    """The window of a run and its layout.

    On learner 0: a word to stop, the number of the snapshot asked for, the counts of blocks begun and
    trained and of snapshots that learners have collected, per actor whether it has data and the
    version it acts with; then the board. The pools follow, on learners or on actors.
    """

    STOP, ASK, BEGUN, TRAINED, COLLECTED, FIXED = range(0, 6 * WORD, WORD)

    def __init__(self, process: RunProcess, config: RmaConfig) -> None:
        layout, settings = process.layout, process.config
        self.actors = layout.actors
        self.ready = self.FIXED
        self.acting = self.ready + WORD * self.actors
        length = len(process.agent.get_weights())
        slot = process.codec.max_bytes(settings.block_steps, settings.envs_per_actor)
        central = config.location == "central"
        board = self.acting + WORD * self.actors
        start = board + Board.size(length)
        pool = SlotPool.size(config.slots, slot)
        # Among the players, learners come first and then the actors, in their order.
        mine = start if process.role.rank == 0 else 0
        mine += pool if process.role.learns == central else 0
        assert process.players is not None
        self.window = Window(process.players, mine)
        self.board = Board(self.window, 0, length, board)

        def owner_of(actor: int) -> int:
            return layout.learner_of(actor) if central else layout.learners + actor

        def pool_of(actor: int) -> SlotPool:
            owner = owner_of(actor)
            base = start if owner == 0 else 0
            own = process.role.group == actor and not central
            return SlotPool(
                self.window, owner, config.slots, slot, config.structure, base=base, alone=own
            )

        pools = {owner_of(actor): pool_of(actor) for actor in range(self.actors)}
        self.pools = [pools[owner_of(actor)] for actor in range(self.actors)]

    def announce(self, actor: int) -> None:
        """Mark that this actor has data."""
        self.window.set(0, self.ready + WORD * actor, 1)

    def claim(self, actor: int) -> None:
        """Clear that mark, before looking into the actor's pool, so that no push is missed."""
        self.window.set(0, self.ready + WORD * actor, 0)

    def with_data(self) -> list[int]:
        """The actors that have data."""
        return np.flatnonzero(self.window.words(0, self.ready, self.actors)).tolist()

    def close(self) -> None:
        self.window.free()
