"""Who may act and which block is trained next, so that the policy lag stays bounded.

A pure state machine: the learner reports what happened and follows the result. Lag is bounded by
pacing, never by discarding experience: an actor acts only when it holds a grant, and a grant is
given only when every block under way can still be trained within the bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice


def feasible(versions: Sequence[int], now: int, max_lag: int | None) -> bool:
    """Whether blocks acted with these versions can all be trained, one per version from ``now`` on,
    without any of them lagging by more than ``max_lag``."""
    if max_lag is None:
        return True
    return all(v + max_lag >= now + place for place, v in enumerate(sorted(versions)))


class Pacer:
    """Keeps the grants of one learner's actors.

    ``ahead`` is how many blocks an actor may begin before its last one is trained; with
    ``first_come`` the block that has waited longest is trained next, with ``round_robin`` the one
    whose grant is oldest, however long that takes. Never more than ``most`` blocks are under way.
    """

    def __init__(
        self,
        actors: Sequence[int],
        *,
        max_lag: int | None,
        ahead: int = 1,
        order: str = "first_come",
        most: int | None = None,
    ) -> None:
        self._actors = list(actors)
        self._places = {actor: place for place, actor in enumerate(actors)}
        self._free = set(actors)  # those that may begin a block more
        self._max_lag = max_lag
        self._ahead = ahead
        self._order = order
        self._most = most
        self._granted: deque[int] = deque()  # actors with a grant for a block, oldest first
        self._versions: dict[int, deque[int]] = {actor: deque() for actor in actors}
        self._arrived: deque[int] = deque()
        self._turn = 0

    @property
    def outstanding(self) -> int:
        """Blocks granted and not yet trained."""
        return len(self._granted)

    def join(self, actor: int) -> None:
        """Add an actor."""
        self._places[actor] = len(self._actors)
        self._actors.append(actor)
        self._versions[actor] = deque()
        self._free.add(actor)

    def remove(self, actor: int) -> int:
        """Remove an actor. Return how many of its granted blocks had not arrived: they are lost.

        Those that have arrived are trained like any others.
        """
        here, held = self._arrived.count(actor), self._versions[actor]
        lost = len(held) - here
        for _ in range(lost):
            held.pop()
        granted = [a for a in self._granted if a == actor][:here]
        self._granted = deque([a for a in self._granted if a != actor] + granted)
        self._actors.remove(actor)
        self._places = {actor: place for place, actor in enumerate(self._actors)}
        self._free.discard(actor)
        self._turn = 0
        return lost

    def grants(self, version: int) -> list[int]:
        """Actors that may begin a block now, with the weights of ``version``."""
        given: list[int] = []
        # Only those that are free are looked at: often one of a thousand.
        count = len(self._actors)
        order = sorted(self._free, key=lambda actor: (self._places[actor] - self._turn) % count)
        for allowance in range(1, self._ahead + 2):
            for actor in order:
                if self._most is not None and len(self._granted) >= self._most:
                    break
                if len(self._versions[actor]) < allowance and self._feasible(version, version):
                    self._granted.append(actor)
                    self._versions[actor].append(version)
                    given.append(actor)
        if given:
            self._free.difference_update(a for a in given if not self._has_room(a))
            self._turn = (self._places[given[-1]] + 1) % count
        return given

    def arrived(self, actor: int) -> None:
        """A block of ``actor`` has come."""
        self._arrived.append(actor)

    def next(self, version: int) -> int | None:
        """The actor whose oldest block is to be trained now; None if more blocks must arrive first."""
        if self._order == "round_robin":
            ready = [actor for actor in islice(self._granted, 1) if actor in self._arrived]
        else:
            first = 1 if self._max_lag is None else None
            ready = list(dict.fromkeys(islice(self._arrived, first)))
        # Other learners' rounds may have made our blocks late; waiting would only make them later.
        late = not self._feasible(version)
        return next((a for a in ready if late or self._feasible(version + 1, without=a)), None)

    def trained(self, actor: int) -> None:
        """The oldest block of ``actor`` has been trained."""
        self._granted.remove(actor)
        self._versions[actor].popleft()
        self._arrived.remove(actor)
        if actor in self._places and self._has_room(actor):
            self._free.add(actor)

    def _has_room(self, actor: int) -> bool:
        """Whether it may begin one block more."""
        return len(self._versions[actor]) <= self._ahead

    def _feasible(self, now: int, new: int | None = None, without: int | None = None) -> bool:
        """Whether the bound can hold from ``now`` on, with a ``new`` block or ``without`` one."""
        if self._max_lag is None:
            return True
        versions = [v for held in self._versions.values() for v in held]
        if new is not None:
            versions.append(new)
        if without is not None:
            versions.remove(self._versions[without][0])
        return feasible(versions, now, self._max_lag)
