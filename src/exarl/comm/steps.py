"""What an actor reports after each step when another rank acts for its environments.

Layout: a ``StepHeader``, the seconds, the row of the step; then, where there are any, ends, cuts and
failures, what is told of the episodes that are over
(with log_info), and last the state of the environments where the report carries one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exarl.comm.codec import decode_info, encode_info
from exarl.comm.messages import HEADER_BYTES, StepHeader, StepKind, decode, header
from exarl.types import FAILURES, Cut, End, EnvSpec, Row

PHASES = ("env", "wait", "restart")
"""What an actor spends its time on; ``StepReport.seconds`` is in this order."""

_ROW = HEADER_BYTES + 8 * len(PHASES)
"""Where the row begins: this header never needs more than ``HEADER_BYTES``."""


class StepReport(NamedTuple):
    """One report. ``incarnation`` names the process it comes from, ``slot`` -1 all environments."""

    kind: StepKind
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

    def __init__(self, spec: EnvSpec, width: int, info: bool = False, costs: int = 0) -> None:
        self._observation = spec.observation
        self._info = info
        self._width = width
        one = math.prod(spec.observation.shape) * np.dtype(spec.observation.dtype).itemsize
        self._costs = costs
        changing = width if spec.agents_change else 0
        sizes = (one * width, 4 * width, width, width, 8 * costs * width, changing)
        self._edges = [_ROW + sum(sizes[:i]) for i in range(len(sizes) + 1)]
        self._one = one
        self._none_failed = np.zeros((0, 1 + len(FAILURES)), np.int64)
        self._sheet = np.zeros(self._edges[-1], np.uint8)
        self._place = self._sheet.data[:HEADER_BYTES]  # of the header
        self._head: tuple[int, ...] = ()  # what it says
        self._seconds = self._sheet[HEADER_BYTES:_ROW].view(np.float64)
        self.row = self._row(self._sheet)

    def encode(
        self,
        kind: StepKind,
        incarnation: int,
        slot: int = -1,
        *,
        ends: Sequence[End] = (),
        cuts: Sequence[Cut] = (),
        failed: tuple[int, np.ndarray],
        seconds: Sequence[float] = (0.0,) * len(PHASES),
        tail: bytes = b"",
    ) -> np.ndarray:
        """The report, valid until the next one; ``failed`` are the restarts and the failures."""
        restarts, failures = failed
        head = (kind, incarnation, slot, restarts, len(ends), len(cuts), len(failures))
        if head != self._head:  # most steps have the header of the step before
            self._head = head
            self._place[:] = header(StepHeader(*head))
        self._seconds[:] = seconds
        if not (ends or cuts or len(failures) or tail):
            return self._sheet
        numbers = np.array([[e.slot, e.total_reward, e.length] for e in ends], np.float64)
        finals = np.array([e.observation for e in ends], self._observation.dtype)
        parts = [numbers, finals, np.array([cut[:4] for cut in cuts], np.float64), failures]
        if self._info and (ends or cuts):
            told = encode_info([*(end.info for end in ends), *(cut.info for cut in cuts)])
            parts += [np.array([len(told)]), told]
        pieces = [np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts]
        return np.concatenate([self._sheet, *pieces, np.frombuffer(tail, np.uint8)])

    def decode(self, payload: np.ndarray) -> StepReport:
        """The report behind ``payload``; its arrays are views into it."""
        head, _ = decode(payload, StepHeader)
        seconds = payload[HEADER_BYTES:_ROW].view(np.float64)
        at = self._edges[-1]

        def take(size: int) -> np.ndarray:
            nonlocal at
            piece, at = payload[at : at + size], at + size
            return piece

        ends: list[End] = []
        cuts: list[Cut] = []
        if head.ends:
            numbers = take(24 * head.ends).view(np.float64).reshape(-1, 3).tolist()
            finals = take(self._one * head.ends).view(self._observation.dtype)
            finals = finals.reshape(head.ends, *self._observation.shape)
            ends = [
                End(int(s), final, total, int(n))
                for (s, total, n), final in zip(numbers, finals, strict=True)
            ]
        if head.cuts:
            rows = take(32 * head.cuts).view(np.float64).reshape(-1, 4).tolist()
            cuts = [Cut(int(s), int(number), total, int(n)) for s, number, total, n in rows]
        failures = self._none_failed
        if head.failed:
            failures = take(failures.itemsize * failures.shape[1] * head.failed)
            failures = failures.view(np.int64).reshape(head.failed, -1)
        if self._info and (ends or cuts):
            told = decode_info(take(int(take(8).view(np.int64)[0])))
            ends = [e._replace(info=i) for e, i in zip(ends, told, strict=False)]
            cuts = [c._replace(info=i) for c, i in zip(cuts, told[len(ends) :], strict=True)]
        origin = (head.kind, head.incarnation, head.slot, head.restarts)
        return StepReport(*origin, seconds, self._row(payload), ends, cuts, failures, payload[at:])

    def _row(self, sheet: np.ndarray) -> Row:
        a, b, c, d, e, f, g = self._edges
        seen = sheet[a:b].view(self._observation.dtype)
        return Row(
            seen.reshape(self._width, *self._observation.shape),
            sheet[b:c].view(np.float32),
            sheet[c:d].view(bool),
            sheet[d:e].view(bool),
            sheet[e:f].view(np.float32).reshape(self._width, 2, self._costs),
            sheet[f:g].view(bool),
        )
