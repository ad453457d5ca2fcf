"""What an actor says after each step when another rank acts for its environments.

Layout: eight int64 (kind, incarnation, slot, restarts, and the counts of what follows), the seconds,
the row of the step; then, where there are any, ends, cuts and failures, and whatever is behind them.
Kind and slot mean what the two sides agreed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exarl.types import FAILURES, Cut, End, EnvSpec, Row

PHASES = ("env", "wait", "restart")
"""What an actor spends its time on; ``Report.seconds`` is in this order."""

_WORDS = 8
_HEAD = 8 * (_WORDS + len(PHASES))


class Report(NamedTuple):
    """One message. ``incarnation`` names the process it comes from, ``slot`` -1 all environments."""

    kind: int
    incarnation: int
    slot: int
    restarts: int
    seconds: np.ndarray
    row: Row
    ends: list[End]
    cuts: list[Cut]
    failures: np.ndarray  # [F, 1 + kinds], as in a block
    tail: np.ndarray


class StepCodec:
    """Encodes and decodes the reports on ``width`` environments.

    ``row`` is the actor's: what is written there is in the next report.
    """

    def __init__(self, spec: EnvSpec, width: int) -> None:
        self._observation = spec.observation
        self._width = width
        one = int(np.prod(spec.observation.shape)) * np.dtype(spec.observation.dtype).itemsize
        sizes = (one * width, 4 * width, width, width)
        self._edges = [_HEAD + sum(sizes[:i]) for i in range(len(sizes) + 1)]
        self._one = one
        self._sheet = np.zeros(self._edges[-1], np.uint8)
        self._words = self._sheet[: 8 * _WORDS].view(np.int64)
        self._seconds = self._sheet[8 * _WORDS : _HEAD].view(np.float64)
        self.row = self._row(self._sheet)

    def encode(
        self,
        kind: int,
        incarnation: int,
        slot: int = -1,
        *,
        ends: Sequence[End] = (),
        cuts: Sequence[Cut] = (),
        failed: tuple[int, np.ndarray],
        seconds: Sequence[float] = (0.0,) * len(PHASES),
        tail: bytes = b"",
    ) -> np.ndarray:
        """The report; ``failed`` are the restarts and the failures. Good until the next one."""
        restarts, failures = failed
        self._words[:] = kind, incarnation, slot, restarts, len(ends), len(cuts), len(failures), 0
        self._seconds[:] = seconds
        if not (ends or cuts or len(failures) or tail):
            return self._sheet
        numbers = np.array([[e.slot, e.total_reward, e.length] for e in ends], np.float64)
        finals = np.array([e.observation for e in ends], self._observation.dtype)
        parts = [numbers, finals, np.array(cuts, np.float64), failures]
        pieces = [np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts]
        return np.concatenate([self._sheet, *pieces, np.frombuffer(tail, np.uint8)])

    def decode(self, payload: np.ndarray) -> Report:
        """The report behind ``payload``; its arrays are views into it."""
        words = payload[: 8 * _WORDS].view(np.int64).tolist()
        kind, incarnation, slot, restarts, ended, cut, failed, _ = words
        seconds = payload[8 * _WORDS : _HEAD].view(np.float64)
        at = self._edges[-1]

        def take(size: int) -> np.ndarray:
            nonlocal at
            piece, at = payload[at : at + size], at + size
            return piece

        ends: list[End] = []
        cuts: list[Cut] = []
        if ended:
            numbers = take(24 * ended).view(np.float64).reshape(-1, 3).tolist()
            finals = take(self._one * ended).view(self._observation.dtype)
            finals = finals.reshape(ended, *self._observation.shape)
            ends = [
                End(int(s), final, total, int(n))
                for (s, total, n), final in zip(numbers, finals, strict=True)
            ]
        if cut:
            rows = take(32 * cut).view(np.float64).reshape(-1, 4).tolist()
            cuts = [Cut(int(s), int(number), total, int(n)) for s, number, total, n in rows]
        kinds = 1 + len(FAILURES)
        failures = take(8 * kinds * failed).view(np.int64).reshape(-1, kinds)
        row = self._row(payload)
        tail = payload[at:]
        return Report(kind, incarnation, slot, restarts, seconds, row, ends, cuts, failures, tail)

    def _row(self, sheet: np.ndarray) -> Row:
        a, b, c, d, e = self._edges
        seen = sheet[a:b].view(self._observation.dtype)
        return Row(
            seen.reshape(self._width, *self._observation.shape),
            sheet[b:c].view(np.float32),
            sheet[c:d].view(bool),
            sheet[d:e].view(bool),
        )
