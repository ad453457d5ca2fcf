"""Who may act and which block is trained next, so that the policy lag stays bounded.

A pure state machine: the learner reports what happened and follows the result. Lag is bounded by
pacing, never by discarding experience: an actor acts only when it holds a grant, and a grant is
given only when every block under way can still be trained within the bound.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Sequence


def feasible(versions: Sequence[int], now: int, max_lag: int | None) -> bool:
    """Whether blocks acted with these versions can all be trained, one per version from ``now`` on,
    without any of them lagging by more than ``max_lag``."""
    if max_lag is None:
        return True
    return all(v + max_lag >= now + place for place, v in enumerate(sorted(versions)))


def may_begin(begun: int, trained: int, max_lag: int | None) -> bool:
    """Whether a block may begin, when no one grants it: those under way and this one can then be
    trained within the bound, one after another."""
    return max_lag is None or begun - trained <= max_lag


def oldest_in_time(
    waiting: Sequence[int], acting: Sequence[int], now: int, max_lag: int
) -> int | None:
    """The place, in ``waiting``, of the block to be trained now: the one that acted longest ago, if
    the others and those still ``acting`` can wait until it is trained; else None. All by version."""
    if not waiting:
        return None
    choice = min(range(len(waiting)), key=waiting.__getitem__)
    if not feasible(waiting, now, max_lag):
        return choice  # late through other learners: waiting would only make it later
    others = [*acting, *waiting[:choice], *waiting[choice + 1 :]]
    return choice if feasible(others, now + 1, max_lag) else None


class Pacer:
    """Keeps the grants of one learner's actors.

    ``ahead`` is how many blocks an actor may begin before its last one is trained; with
    ``first_come`` the block that has waited longest is trained next, with ``round_robin`` the one
    whose grant is oldest, however long that takes. Never more than ``most`` blocks are under way.
    A block costs a time that hardly grows with the number of actors.
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
        self._max_lag = max_lag
        self._ahead = ahead
        self._order = order
        self._most = most
        self._tickets = 0
        self._granted: OrderedDict[int, tuple[int, int]] = OrderedDict()  # actor and version
        self._held: dict[int, deque[int]] = {actor: deque() for actor in actors}  # its tickets
        self._arrived: deque[int] = deque()
        self._turn = 0
        self._place_actors()

    @property
    def outstanding(self) -> int:
        """Blocks granted and not yet trained."""
        return len(self._granted)

    def join(self, actor: int) -> None:
        """Add an actor."""
        self._held[actor] = deque()
        self._places[actor] = len(self._actors)
        self._room.append(len(self._actors))
        self._actors.append(actor)

    def remove(self, actor: int) -> int:
        """Remove an actor. Return how many of its granted blocks had not arrived: they are lost.

        Those that have arrived are trained like any others.
        """
        here, held = self._arrived.count(actor), self._held[actor]
        grants = [self._granted.pop(ticket) for ticket in held]
        held.clear()
        for _, version in grants[:here]:
            self._grant(actor, version)
        self._actors.remove(actor)
        self._turn = 0
        self._place_actors()
        return len(grants) - here

    def grants(self, version: int) -> list[int]:
        """Actors that may begin a block now, with the weights of ``version``."""
        given: list[int] = []
        start = bisect_left(self._room, self._turn)
        for allowance in range(1, self._ahead + 2):
            for turn in range(start - len(self._room), start):  # from the start on, then around
                actor = self._actors[self._room[turn]]
                if len(self._held[actor]) >= allowance:
                    continue
                if self._full or not self._feasible(version, version):
                    break
                self._grant(actor, version)
                given.append(actor)
        for actor in given:
            self._settle(actor)
        if given:
            self._turn = (self._places[given[-1]] + 1) % len(self._actors)
        return given

    def arrived(self, actor: int) -> None:
        """A block of ``actor`` has come."""
        self._arrived.append(actor)

    def next(self, version: int) -> int | None:
        """The actor whose oldest block is to be trained now; None if more blocks must arrive first."""
        if not self._arrived:
            return None
        if self._order == "round_robin":
            oldest = next(iter(self._granted.values()))[0]
            ready = [oldest] if oldest in self._arrived else []
        elif self._max_lag is None:
            return self._arrived[0]
        else:
            ready = list(dict.fromkeys(self._arrived))
        # Other learners' rounds may have made our blocks late; waiting would only make them later.
        late = not self._feasible(version)
        return next((a for a in ready if late or self._feasible(version + 1, without=a)), None)

    def trained(self, actor: int) -> None:
        """The oldest block of ``actor`` has been trained."""
        del self._granted[self._held[actor].popleft()]
        self._arrived.remove(actor)
        self._settle(actor)

    @property
    def _full(self) -> bool:
        return self._most is not None and len(self._granted) >= self._most

    def _grant(self, actor: int, version: int) -> None:
        self._granted[self._tickets] = actor, version
        self._held[actor].append(self._tickets)
        self._tickets += 1

    def _place_actors(self) -> None:
        """Number the actors, and find those that may be granted a block: ``_room``, sorted places."""
        self._places = {actor: place for place, actor in enumerate(self._actors)}
        self._room = [
            place
            for place, actor in enumerate(self._actors)
            if len(self._held[actor]) <= self._ahead
        ]

    def _settle(self, actor: int) -> None:
        """See again whether there is room for a block of ``actor``, if it is not removed."""
        if (place := self._places.get(actor)) is None:
            return
        at = bisect_left(self._room, place)
        listed = self._room[at : at + 1] == [place]
        if len(self._held[actor]) <= self._ahead:
            if not listed:
                insort(self._room, place)
        elif listed:
            del self._room[at]

    def _feasible(self, now: int, new: int | None = None, without: int | None = None) -> bool:
        """Whether the bound can hold from ``now`` on, with a ``new`` block or ``without`` one."""
        if self._max_lag is None:
            return True
        versions = [version for _, version in self._granted.values()]
        if new is not None:
            versions.append(new)
        if without is not None:
            versions.remove(self._granted[self._held[without][0]][1])
        return feasible(versions, now, self._max_lag)
