"""The numbers in ``info``, and what a run keeps of them for each episode."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from exarl.envs.outcome import ContractError
from exarl.types import Arrays, EpisodeInfo

EVERYTHING = "all"
"""Instead of names: every number in ``info``."""
LISTED = 16
"""The longest array whose numbers are told one by one; of a longer one its mean, min and max."""
MOST_NUMBERS, LONGEST_NAME = 64, 64
"""Numbers of an episode that are kept, and the bytes of a name; others are left out, with a warning."""
PREFIX = "info/"
NOT_LOGGED = ("action_mask",)  # what the agent itself reads
_DECIDED = 1000  # names that are remembered as wanted or not

_PLAIN = frozenset((float, int, bool, np.float64, np.float32, np.int64, np.int32, np.bool_))

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
    if isinstance(value, float | int | np.floating | np.integer | np.bool_):
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


def is_wanted(name: str, names: Sequence[str]) -> bool:
    """Whether the number ``name`` is one of ``names``, or part of one, or all are asked for."""
    return EVERYTHING in names or any(name == n or name.startswith(f"{n}.") for n in names)


def _as_float(value: float | int | np.floating[Any] | np.integer[Any] | np.bool_) -> float:
    try:
        return float(value)
    except OverflowError:  # a huge integer
        return math.nan


class InfoSums:
    """Sums up the finite numbers of the present episode: all, or those with one of these ``names``.

    A name also stands for its parts (``numbers_in``). The info of ``reset`` is not counted, since no
    step led to it.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._all = EVERYTHING in names
        self._names = tuple(names)
        # What was decided of the names seen so far.
        self._wanted: dict[str, bool] = dict.fromkeys(NOT_LOGGED, False)
        # Of arrays all of whose numbers are wanted: their names, and the array's shape and type.
        self._lists: dict[str, tuple[list[str], tuple[int, ...], np.dtype[Any]]] = {}
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
        known, wanted = self._sums, self._wanted
        for key, value in info.items():
            kind = type(value)
            if (sums := known.get(key)) is not None and kind in _PLAIN:
                _add(sums, value if kind is float else _as_float(value))
            elif (listed := self._lists.get(key)) and kind is np.ndarray:
                if (value.shape, value.dtype) == listed[1:]:
                    for name, number in zip(listed[0], value.tolist(), strict=True):
                        self._count(name, number)
                else:
                    self._find(key, value)
            elif kind is not str and wanted.get(key, True):
                self._find(key, value)

    def state(self) -> Arrays:
        """The sums for a checkpoint."""
        return {f"{PREFIX}{name}": np.array(sums) for name, sums in self._sums.items()}

    def restore(self, state: Arrays) -> None:
        """Take over what ``state`` returned; ValueError where that is no sums."""
        kept = {n.removeprefix(PREFIX): a for n, a in state.items() if n.startswith(PREFIX)}
        if any(a.shape != (5,) or a.dtype != np.float64 for a in kept.values()):
            raise ValueError("the sums of info do not have five numbers each")
        self._sums = {name: array.tolist() for name, array in kept.items()}

    def _find(self, key: str, value: object) -> None:
        """Count the numbers of an entry that is seen for the first time, or is of no simple kind."""
        found = list(numbers_of(key, value))
        chosen = [pair for pair in found if self._decide(pair[0])]
        for name, number in chosen:
            self._count(name, number)
        if key not in self._wanted and not self._leads_to(key):
            self._note(key, False)
        if isinstance(value, np.ndarray) and value.ndim == 1 and len(chosen) == value.size:
            self._lists[key] = [name for name, _ in chosen], value.shape, value.dtype

    def _leads_to(self, key: str) -> bool:
        """Whether this key of ``info``, or a part of what it holds, may be wanted."""
        return self._all or self._decide(key) or any(n.startswith(f"{key}.") for n in self._names)

    def _decide(self, name: str) -> bool:
        wanted = self._wanted.get(name)
        if wanted is not None:
            return wanted
        wanted = is_wanted(name, self._names)
        if wanted:
            self._note(name, True)
        return wanted

    def _note(self, name: str, wanted: bool) -> None:
        if len(self._wanted) < _DECIDED:
            self._wanted[name] = wanted

    def _count(self, name: str, number: float) -> None:
        sums = self._sums.get(name)
        if sums is not None:
            _add(sums, number)
        elif math.isfinite(number):
            self._begin(name, number)

    def _begin(self, name: str, number: float) -> None:
        if len(self._sums) < MOST_NUMBERS and _is_short(name):
            self._sums[name] = [number, 1.0, number, number, number]
        elif not self._warned:
            self._warned = True
            _warn(name)


def logged_of(there: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Those of the numbers ``there`` that are kept of an episode, with ``names`` as in ``InfoSums``."""
    chosen = [n for n in there if n.partition(".")[0] not in NOT_LOGGED and is_wanted(n, names)]
    kept = [name for name in chosen if _is_short(name)][:MOST_NUMBERS]
    if left_out := [name for name in chosen if name not in kept]:
        _warn(left_out[0])
    return tuple(kept)


def _is_short(name: str) -> bool:
    return len(name.encode(errors="replace")) <= LONGEST_NAME


def _warn(name: str) -> None:
    log.warning(
        "info has more than %d numbers or a name of more than %d bytes; '%s' is not logged"
        " (log_info with names chooses)",
        MOST_NUMBERS,
        LONGEST_NAME,
        name,
    )


def _add(sums: list[float], number: float) -> None:
    """Count a number, if it is finite."""
    if number - number == 0:
        sums[0] += number
        sums[1] += 1
        sums[2] = number
        if number < sums[3]:
            sums[3] = number
        elif number > sums[4]:
            sums[4] = number


class CostSums:
    """The numbers with these ``names`` at the last step, and their sums in the present episode.

    Each step must have them: a name that is not there would be a limit that always holds.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self.begin()

    def begin(self) -> None:
        """A new episode."""
        self.step_and_sum: list[list[float]] = [[0.0] * len(self._names) for _ in range(2)]

    def add(self, info: object) -> None:
        """Count the costs of a step; ContractError, which leaves the sums as they are, where one is
        missing or is no finite number."""
        found = info if isinstance(info, dict) else {}
        try:
            costs = [float(found[name]) for name in self._names]
        except (KeyError, TypeError, ValueError):
            flat = dict(numbers_in(found))
            costs = [flat.get(name, math.nan) for name in self._names]
        for name, cost in zip(self._names, costs, strict=True):
            if not math.isfinite(cost):
                there = ", ".join(list(dict(numbers_in(found)))[:8]) or "nothing"
                raise ContractError(
                    f"info has no number '{name}', which constraints limit; it has {there}"
                )
        sums = [before + cost for before, cost in zip(self.step_and_sum[1], costs, strict=True)]
        self.step_and_sum = [costs, sums]

    def restore(self, costs: np.ndarray) -> None:
        """Go on with what ``step_and_sum`` was; ValueError where that is something else."""
        if costs.shape != (2, len(self._names)) or costs.dtype.kind != "f":
            raise ValueError("the costs of an episode are not those of its constraints")
        self.step_and_sum = costs.tolist()
