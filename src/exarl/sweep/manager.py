"""Running a study: settings are asked for, trained with every seed, and told."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from exarl.envs.child import how_it_ended
from exarl.errors import ExarlError
from exarl.records.directory import RunDirectory
from exarl.records.signals import STOP_SIGNALS, StopSignals
from exarl.sweep.executors import Executor, Handle, Job
from exarl.sweep.study import Asked, Row, Study
from exarl.sweep.trial import Curve, is_finished, last_words, summed_up, value_of

POLL_S = 0.1
_STOPPED = tuple(128 + number for number in STOP_SIGNALS)
"""Exit codes of a training that somebody else has told to stop: a scheduler, as a rule."""
_SHOW_S = 1.0
_OTHERS_S = 2.0


class Display(Protocol):
    """Shows how a study stands."""

    def update(self, rows: list[Row]) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass
class Under:
    """A setting under way."""

    asked: Asked
    pending: list[int]
    curve: Curve | None = None
    running: dict[int, Handle] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)
    values: dict[int, float] = field(default_factory=dict)
    error: str = ""
    pruned: bool = False
    stopped: bool = False

    @property
    def over(self) -> bool:
        return not self.running and not self.pending

    def give_up(self) -> None:
        """No further seeds; those that run are asked to end."""
        self.pending.clear()
        for handle in self.running.values():
            handle.terminate()


class Manager:
    """Runs settings of ``study`` until there are none left to take.

    ``wait`` says that it then waits for other workers, and runs again what they lose.
    """

    def __init__(
        self, study: Study, executor: Executor, display: Display, *, wait: bool = True
    ) -> None:
        self._study, self._executor, self._display = study, executor, display
        self._config, self._folder = study.config, study.folder
        self._wait = wait
        self._open: list[Under] = []
        self._quota: int | None = self._config.options.batch
        self._next_show = self._next_ask = self._next_check = 0.0

    def run(self, retry_failed: bool = False) -> int | None:
        """Work until the study is done; the signal that ended it early, else None."""
        lost = self._study.prepare(retry_failed)
        if lost:
            self._display.note(f"running again: {', '.join(map(str, lost))}")
        with StopSignals() as signals:
            try:
                while signals.received is None and self._turn():
                    time.sleep(POLL_S)
                if signals.received is not None:
                    self._stop(signals.received)
            except BaseException:
                for under in self._open:
                    for handle in under.running.values():
                        handle.kill()
                    self._study.lose(under.asked)
                raise
        self._display.update(self._study.rows())
        return signals.received

    def _turn(self) -> bool:
        """Poll and start; False when there is nothing left to do."""
        for under in self._open:
            self._poll(under)
        told = self._tell()
        self._fill()
        now = time.monotonic()
        if told or now >= self._next_show:
            self._next_show = now + _SHOW_S
            self._display.update(self._study.rows())
        if self._open:
            return True
        if not self._wait or not self._study.running():
            return self._study.waiting() > 0
        if now >= self._next_check:
            self._next_check = now + _OTHERS_S
            if self._study.prepare():
                self._next_ask = 0.0
        return True

    # -- starting -------------------------------------------------------------------------------

    def _fill(self) -> None:
        free = self._executor.slots - sum(len(under.running) for under in self._open)
        for under in self._takers():
            while free > 0 and under.pending and self._may_start(under):
                free -= self._start(under, under.pending.pop(0))
            if free <= 0:
                return

    def _takers(self) -> Iterator[Under]:
        """Settings under way, oldest first, then new ones."""
        yield from list(self._open)
        while (self._quota is None or self._quota > 0) and time.monotonic() >= self._next_ask:
            asked = self._study.ask()
            if asked is None:
                self._next_ask = (
                    time.monotonic() + _OTHERS_S
                )  # asking takes a lock on a shared disk
                return
            if self._quota is not None:
                self._quota -= 1
            under = Under(asked, self._config.seeds(), self._curve(asked))
            self._open.append(under)
            yield under

    def _may_start(self, under: Under) -> bool:
        """With a pruner the first seed goes ahead, and the others follow if it is not pruned."""
        first = self._config.seeds()[0]
        return under.curve is None or first in under.values or under.pending[0] == first

    def _start(self, under: Under, seed: int) -> int:
        """Start a seed; 0 when it is done already, by a worker that was lost before it told."""
        place = self._place(under, seed)
        if is_finished(place):
            self._value(under, seed)
            return 0
        words = ["train", *self._config.words(under.asked.point)]
        words += [f"--seed={seed}", f"--run_dir={place.absolute()}"]
        job = Job(words, self._place(under, seed).with_suffix(".log"), Path(self._config.folder))
        try:
            under.running[seed] = self._executor.start(job)
        except OSError as error:
            under.error = f"cannot be started: {error}"
            under.give_up()
            return 0
        under.began[seed] = time.monotonic()
        return 1

    def _curve(self, asked: Asked) -> Curve | None:
        options = self._config.options
        if options.pruner == "none":
            return None
        total = self._config.configuration(asked.point).learner.total_steps
        place = self._folder.trial(asked.setting) / f"seed_{self._config.seeds()[0]}"
        return Curve(RunDirectory(place).result, total or 1, options.marks)

    # -- polling --------------------------------------------------------------------------------

    def _poll(self, under: Under) -> None:
        limit = self._config.options.timeout
        for seed, handle in list(under.running.items()):
            code = handle.poll()
            if code is not None:
                del under.running[seed]
                self._ended(under, seed, code)
            elif limit is not None and time.monotonic() - under.began[seed] > limit:
                under.error = under.error or f"seed {seed} took longer than {limit:g} s"
                under.give_up()
        if under.curve is not None and not under.pruned and not under.error:
            for mark, value in under.curve.news():
                if self._study.report(under.asked, mark, value) and not under.over:
                    under.pruned = True
                    under.give_up()
                    break

    def _ended(self, under: Under, seed: int, code: int) -> None:
        if under.pruned or under.error or under.stopped:
            return
        if code == 0 and is_finished(self._place(under, seed)):
            self._value(under, seed)
            return
        if code in _STOPPED:
            under.stopped = True
            under.give_up()
            return
        words = last_words(self._place(under, seed).with_suffix(".log"))
        under.error = f"seed {seed} {how_it_ended(code)}" + (f": {words}" if words else "")
        under.give_up()

    def _value(self, under: Under, seed: int) -> None:
        try:
            under.values[seed] = value_of(self._place(under, seed), self._config.options.metric)
        except ExarlError as error:
            under.error = f"seed {seed}: {error}"
            under.give_up()

    # -- telling --------------------------------------------------------------------------------

    def _tell(self) -> bool:
        """Tell what is over; in a batch, when all of it is, in the order of the settings."""
        over = [under for under in self._open if under.over]
        if self._quota is not None:
            whole = len(over) == len(self._open) and (not self._quota or not self._study.waiting())
            if not whole:
                return False
            self._quota = self._config.options.batch
        for under in sorted(over, key=lambda u: u.asked.setting):
            self._open.remove(under)
            self._tell_one(under)
        return bool(over)

    def _tell_one(self, under: Under) -> None:
        if under.stopped:
            self._study.lose(under.asked)
        elif under.pruned:
            self._study.prune(under.asked)
        elif under.error:
            self._study.fail(under.asked, under.error)
        else:
            ordered = dict(sorted(under.values.items()))
            value = summed_up(list(ordered.values()), self._config.options.objective)
            self._study.complete(under.asked, ordered, value)

    # -- stopping -------------------------------------------------------------------------------

    def _stop(self, number: int) -> None:
        """Ask everything to end, wait for it, and leave what is unfinished to be run again."""
        name = signal.Signals(number).name
        self._display.note(f"{name}: trainings write their checkpoints; again ends them at once")
        for under in self._open:
            for handle in under.running.values():
                handle.terminate()
        while any(handle.poll() is None for u in self._open for handle in u.running.values()):
            time.sleep(POLL_S)
        for under in self._open:
            for seed in [seed for seed in under.running if is_finished(self._place(under, seed))]:
                del under.running[seed]
                self._value(under, seed)
            if under.pruned or under.error or under.over:
                self._tell_one(under)
            else:
                self._study.lose(under.asked)
        self._open.clear()

    def _place(self, under: Under, seed: int) -> Path:
        return self._folder.trial(under.asked.setting) / f"seed_{seed}"
