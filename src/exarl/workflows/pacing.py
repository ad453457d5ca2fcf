"""Who may act and which block is trained next, so that the policy lag stays bounded.

A pure state machine: the learner tells it what happened and does what it says. Lag is bounded by
pacing, never by throwing experience away: an actor acts only when it holds a grant, and a grant is
given only when every block under way can still be trained within the bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grant:
    """Leave for one block: the actor, and the version of the weights that went with it."""

    actor: int
    version: int


def feasible(versions: Sequence[int], now: int, max_lag: int | None) -> bool:
    """Whether blocks acted with these versions can all be trained, one a version from ``now`` on,
    without any of them lagging by more than ``max_lag``."""
    if max_lag is None:
        return True
    return all(v + max_lag >= now + place for place, v in enumerate(sorted(versions)))


class Pacer:
    """Keeps the grants of one learner's actors.

    ``ahead`` is how many blocks an actor may begin before its last one is trained; with
    ``first_come`` the block that has waited longest is trained next, with ``round_robin`` the one
    whose grant is oldest, however long that takes.
    """

    def __init__(
        self,
        actors: Sequence[int],
        *,
        max_lag: int | None,
        ahead: int = 1,
        order: str = "first_come",
    ) -> None:
        self._actors = list(actors)
        self._max_lag = max_lag
        self._ahead = ahead
        self._order = order
        self._granted: list[Grant] = []  # oldest first
        self._arrived: deque[int] = deque()
        self._turn = 0

    @property
    def outstanding(self) -> int:
        """Blocks granted and not yet trained."""
        return len(self._granted)

    def grants(self, version: int) -> list[int]:
        """Actors that may begin a block now, with the weights of ``version``."""
        given: list[int] = []
        for allowance in range(1, self._ahead + 2):
            for place in range(len(self._actors)):
                actor = self._actors[(self._turn + place) % len(self._actors)]
                held = sum(grant.actor == actor for grant in self._granted)
                versions = [*(grant.version for grant in self._granted), version]
                if held < allowance and feasible(versions, version, self._max_lag):
                    self._granted.append(Grant(actor, version))
                    given.append(actor)
        if given:
            self._turn = (self._actors.index(given[-1]) + 1) % len(self._actors)
        return given

    def arrived(self, actor: int) -> None:
        """A block of ``actor`` is here."""
        self._arrived.append(actor)

    def next(self, version: int) -> int | None:
        """The actor whose oldest block is to be trained now; None: wait for more to arrive."""
        if self._order == "round_robin":
            ready = [self._granted[0].actor] if self._granted else []
            ready = [actor for actor in ready if actor in self._arrived]
        else:
            ready = list(dict.fromkeys(self._arrived))
        for actor in ready:
            others = list(self._granted)
            others.remove(self._oldest(actor))
            if feasible([grant.version for grant in others], version + 1, self._max_lag):
                return actor
        return None

    def trained(self, actor: int) -> None:
        """The oldest block of ``actor`` has been trained."""
        self._granted.remove(self._oldest(actor))
        self._arrived.remove(actor)

    def _oldest(self, actor: int) -> Grant:
        return next(grant for grant in self._granted if grant.actor == actor)
