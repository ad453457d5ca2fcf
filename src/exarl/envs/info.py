"""The numbers in ``info``, and what a run keeps of them for each episode."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from exarl.types import Arrays, EpisodeInfo

EVERYTHING = "all"
"""Instead of names: every number in ``info``."""
LISTED = 16
"""The longest array whose numbers are told one by one; of a longer one its mean, min and max."""
MOST_NUMBERS, LONGEST_NAME = 64, 64
"""Numbers of an episode that are kept, and the bytes of a name; others are left out, with a warning."""
PREFIX = "info/"
_NOT_LOGGED = ("action_mask",)  # what the agent itself reads
_DECIDED = 1000  # names that are remembered as wanted or not

log = logging.getLogger(__name__)


def numbers_in(info: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    """Name and value of each number in ``info``.

    Of an array the parts ``name.0``, ``name.1`` ..., of a long one ``name.mean``, ``name.min`` and
    ``name.max``; of a dictionary ``name.key``. What is neither is passed over.
    """
    for name, value in info.items():
        yield from numbers_of(name, value)


def numbers_of(name: str, value: object) -> Iterator[tuple[str, float]]:
    """The numbers of one entry of ``info``."""
    if isinstance(value, float | int | np.number | np.bool_):
        yield name, _as_float(value)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from numbers_of(f"{name}.{key}", part)
    elif isinstance(value, np.ndarray | list | tuple) or hasattr(value, "__array__"):
        yield from _parts(name, value)


def _parts(name: str, value: object) -> Iterator[tuple[str, float]]:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" or not array.size:
            return
    except (ValueError, TypeError):  # a list of unequal lists
        return
    if not array.ndim:
        yield from numbers_of(name, float(array))
    elif array.size <= LISTED:
        for place, number in enumerate(array.ravel().tolist()):
            yield from numbers_of(f"{name}.{place}", number)
    else:
        for what in ("mean", "min", "max"):
            yield from numbers_of(f"{name}.{what}", float(getattr(array, what)()))


def _as_float(value: float | int | np.number | np.bool_) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError):  # a huge integer, a complex number
        return math.nan


class InfoSums:
    """Sums up the finite numbers of the present episode: all, or those with one of these ``names``.

    A name also stands for its parts (``numbers_in``). The info of ``reset`` is not counted, since no
    step led to it.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._all = EVERYTHING in names
        self._names = tuple(names)
        self._wanted = dict.fromkeys(
            _NOT_LOGGED, False
        )  # what was decided of the names seen so far
        self._warned = False
        self._sums: dict[str, list[float]] = {}

    @property
    def of_episode(self) -> EpisodeInfo:
        """Sum, count, last, min and max of each number in this episode; of an episode that has ended
        it does not change any more."""
        return self._sums

    def begin(self) -> None:
        """A new episode."""
        self._sums = {}

    def add(self, info: object) -> None:
        """Count the numbers of a step."""
        if not isinstance(info, dict):
            return
        wanted = self._wanted
        for key, value in info.items():
            if not wanted.get(key, True):
                continue
            if type(value) is float and wanted.get(key):
                self._count(key, value)
                continue
            for name, number in numbers_of(key, value):
                if wanted.get(name) or (name not in wanted and self._decide(name)):
                    self._count(name, number)
            if key not in wanted and not self._leads_to(key):
                self._note(key, False)

    def state(self) -> Arrays:
        """The sums for a checkpoint."""
        return {f"{PREFIX}{name}": np.array(sums) for name, sums in self._sums.items()}

    def restore(self, state: Arrays) -> None:
        """Take over what ``state`` returned; ValueError where that is no sums."""
        kept = {n.removeprefix(PREFIX): a for n, a in state.items() if n.startswith(PREFIX)}
        if any(a.shape != (5,) or a.dtype != np.float64 for a in kept.values()):
            raise ValueError("the sums of info do not have five numbers each")
        self._sums = {name: array.tolist() for name, array in kept.items()}

    def _leads_to(self, key: str) -> bool:
        """Whether this key of ``info``, or a part of what it holds, may be wanted."""
        return self._all or self._decide(key) or any(n.startswith(f"{key}.") for n in self._names)

    def _decide(self, name: str) -> bool:
        wanted = self._all or any(name == n or name.startswith(f"{n}.") for n in self._names)
        if wanted:
            self._note(name, True)
        return wanted

    def _note(self, name: str, wanted: bool) -> None:
        if len(self._wanted) < _DECIDED:
            self._wanted[name] = wanted

    def _count(self, name: str, number: float) -> None:
        if not math.isfinite(number):
            return
        sums = self._sums.get(name)
        if sums is None:
            self._begin(name, number)
            return
        sums[0] += number
        sums[1] += 1
        sums[2] = number
        if number < sums[3]:
            sums[3] = number
        elif number > sums[4]:
            sums[4] = number

    def _begin(self, name: str, number: float) -> None:
        if len(self._sums) < MOST_NUMBERS and len(name.encode(errors="replace")) <= LONGEST_NAME:
            self._sums[name] = [number, 1.0, number, number, number]
        elif not self._warned:
            self._warned = True
            log.warning(
                "info has more than %d numbers or a name of more than %d bytes; '%s' is not logged"
                " (log_info with names chooses)",
                MOST_NUMBERS,
                LONGEST_NAME,
                name,
            )
