"""What a learner knows of its actors' environments, so that a silent actor holds up no checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exarl.types import ACTOR_PHASES, Arrays, Block

STATE_TIMEOUT = (
    "seconds a checkpoint waits for an actor's state, then it keeps the last one known;"
    " never less than three of its longest blocks"
)
"""What the parameter ``state_timeout`` of the workflows means."""
_ACTING = [ACTOR_PHASES.index(phase) for phase in ("env", "inference", "restart")]


@dataclass(frozen=True)
class Snapshot:
    """A learner's actors at one moment: the states of their environments, the blocks under way, and
    the actors that have not answered, whose environments' states may be older."""

    envs: Arrays
    pending: list[Block]
    silent: list[int] = field(default_factory=list)


class StateBook:
    """The last known states by actor, and which actors owe one since when.

    ``known`` are the states that actors start with in a resumed run.
    """

    def __init__(self, timeout: float, known: Mapping[int, Arrays] | None = None) -> None:
        self._timeout = timeout
        self._longest_block = 0.0
        self._states = dict(known or {})
        self._owed: dict[int, float] = {}

    @property
    def timeout(self) -> float:
        """Seconds after which an actor counts as silent. Actors answer between two blocks."""
        return max(self._timeout, 3 * self._longest_block)

    def saw(self, block: Block) -> None:
        """Remember how long blocks take."""
        self._longest_block = max(self._longest_block, float(block.seconds[_ACTING].sum()))

    def ask(self, actors: Iterable[int]) -> None:
        """These actors owe a state from now on, if not already since an earlier time."""
        for actor in actors:
            self._owed.setdefault(actor, time.monotonic())

    def told(self, actor: int, state: Arrays, *, owes: bool = False) -> None:
        """A state has come; ``owes``: asked again meanwhile, the actor owes another one."""
        self._states[actor] = state
        if not owes:
            self._owed.pop(actor, None)

    def forget(self, actor: int) -> None:
        """An actor is gone, and its environments with it."""
        self._states.pop(actor, None)
        self._owed.pop(actor, None)

    def settled(self) -> bool:
        """Whether no state is to be waited for: those still owed are overdue."""
        latest = time.monotonic() - self.timeout
        return all(since < latest for since in self._owed.values())

    def silent(self) -> list[int]:
        """The actors that still owe a state."""
        return sorted(self._owed)

    def joined(self) -> Arrays:
        """The last known states of all actors."""
        return {name: a for state in self._states.values() for name, a in state.items()}


def states_of(states: Arrays, env_ids: Iterable[int]) -> Arrays:
    """Of the states of a run's environments, those of ``env_ids``."""
    wanted = {str(env_id) for env_id in env_ids}
    return {name: a for name, a in states.items() if name.partition("/")[0] in wanted}
