"""Running a study: each setting is claimed, trained with every seed, and its result recorded."""

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
from exarl.sweep.study import Claim, SettingRow, Study
from exarl.sweep.trial import Curve, is_finished, last_words, summed_up, value_of

POLL_S = 0.1
_STOPPED = tuple(128 + number for number in STOP_SIGNALS)
"""Exit codes of a training that a signal stopped, usually from a scheduler."""
_SHOW_S = 1.0
_OTHERS_S = 2.0


class Display(Protocol):
    """Shows the progress of a study."""

    def update(self, rows: list[SettingRow]) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass
class RunningSetting:
    """A setting that is being trained: its seeds that wait, run and have ended."""

    claim: Claim
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
        """Start no further seeds, and ask those that run to end."""
        self.pending.clear()
        for handle in self.running.values():
            handle.terminate()


class Manager:
    """Runs settings of ``study`` until none is left.

    With ``wait`` it then waits for the other workers, and runs the settings of those that die.
    """

    def __init__(
        self, study: Study, executor: Executor, display: Display, *, wait: bool = True
    ) -> None:
        self._study, self._executor, self._display = study, executor, display
        self._config, self._folder = study.config, study.folder
        self._wait = wait
        self._open: list[RunningSetting] = []
        self._quota: int | None = self._config.options.batch
        self._next_show = self._next_ask = self._next_check = 0.0

    def run(self, retry_failed: bool = False) -> int | None:
        """Run settings until the study is done; return the signal that stopped it early, else None."""
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
                for setting in self._open:
                    for handle in setting.running.values():
                        handle.kill()
                    self._study.lose(setting.claim)
                raise
        self._display.update(self._study.rows())
        return signals.received

    def _turn(self) -> bool:
        """Poll the trainings, record results and start others; False when nothing is left to do."""
        for setting in self._open:
            self._poll(setting)
        recorded = self._record()
        self._fill()
        now = time.monotonic()
        if recorded or now >= self._next_show:
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
        free = self._executor.slots - sum(len(setting.running) for setting in self._open)
        for setting in self._takers():
            while free > 0 and setting.pending and self._may_start(setting):
                free -= self._start(setting, setting.pending.pop(0))
            if free <= 0:
                return

    def _takers(self) -> Iterator[RunningSetting]:
        """The running settings, oldest first, then new ones."""
        yield from list(self._open)
        while (self._quota is None or self._quota > 0) and time.monotonic() >= self._next_ask:
            claim = self._study.ask()
            if claim is None:
                # Not at every poll: claiming takes a lock on a shared disk.
                self._next_ask = time.monotonic() + _OTHERS_S
                return
            if self._quota is not None:
                self._quota -= 1
            setting = RunningSetting(claim, self._config.seeds(), self._curve(claim))
            self._open.append(setting)
            yield setting

    def _may_start(self, setting: RunningSetting) -> bool:
        """With a pruner the first seed runs alone; the others start when it has ended unpruned."""
        first = self._config.seeds()[0]
        return setting.curve is None or first in setting.values or setting.pending[0] == first

    def _start(self, setting: RunningSetting, seed: int) -> int:
        """Start a seed and return 1; 0 when it cannot start, or when a lost worker had finished it."""
        place = self._place(setting, seed)
        if is_finished(place):
            self._value(setting, seed)
            return 0
        words = ["train", *self._config.words(setting.claim.point)]
        words += [f"--seed={seed}", f"--run_dir={place.absolute()}"]
        job = Job(words, self._place(setting, seed).with_suffix(".log"), Path(self._config.folder))
        try:
            setting.running[seed] = self._executor.start(job)
        except OSError as error:
            setting.error = f"cannot be started: {error}"
            setting.give_up()
            return 0
        setting.began[seed] = time.monotonic()
        return 1

    def _curve(self, claim: Claim) -> Curve | None:
        options = self._config.options
        if options.pruner == "none":
            return None
        total = self._config.configuration(claim.point).learner.total_steps
        place = self._folder.trial(claim.setting) / f"seed_{self._config.seeds()[0]}"
        return Curve(RunDirectory(place).result, total or 1, options.marks)

    # -- polling --------------------------------------------------------------------------------

    def _poll(self, setting: RunningSetting) -> None:
        limit = self._config.options.timeout
        for seed, handle in list(setting.running.items()):
            code = handle.poll()
            if code is not None:
                del setting.running[seed]
                self._ended(setting, seed, code)
            elif limit is not None and time.monotonic() - setting.began[seed] > limit:
                setting.error = setting.error or f"seed {seed} took longer than {limit:g} s"
                setting.give_up()
        if setting.curve is not None and not setting.pruned and not setting.error:
            for mark, value in setting.curve.news():
                if self._study.report(setting.claim, mark, value) and not setting.over:
                    setting.pruned = True
                    setting.give_up()
                    break

    def _ended(self, setting: RunningSetting, seed: int, code: int) -> None:
        if setting.pruned or setting.error or setting.stopped:
            return
        if code == 0 and is_finished(self._place(setting, seed)):
            self._value(setting, seed)
            return
        if code in _STOPPED:
            setting.stopped = True
            setting.give_up()
            return
        words = last_words(self._place(setting, seed).with_suffix(".log"))
        setting.error = f"seed {seed} {how_it_ended(code)}" + (f": {words}" if words else "")
        setting.give_up()

    def _value(self, setting: RunningSetting, seed: int) -> None:
        try:
            setting.values[seed] = value_of(self._place(setting, seed), self._config.options.metric)
        except ExarlError as error:
            setting.error = f"seed {seed}: {error}"
            setting.give_up()

    # -- recording ------------------------------------------------------------------------------

    def _record(self) -> bool:
        """Record the settings that have ended; those of a batch together, in order. False: none."""
        over = [setting for setting in self._open if setting.over]
        if self._quota is not None:
            whole = len(over) == len(self._open) and (not self._quota or not self._study.waiting())
            if not whole:
                return False
            self._quota = self._config.options.batch
        for setting in sorted(over, key=lambda u: u.claim.setting):
            self._open.remove(setting)
            self._record_one(setting)
        return bool(over)

    def _record_one(self, setting: RunningSetting) -> None:
        if setting.stopped:
            self._study.lose(setting.claim)
        elif setting.pruned:
            self._study.prune(setting.claim)
        elif setting.error:
            self._study.fail(setting.claim, setting.error)
        else:
            ordered = dict(sorted(setting.values.items()))
            value = summed_up(list(ordered.values()), self._config.options.objective)
            self._study.complete(setting.claim, ordered, value)

    # -- stopping -------------------------------------------------------------------------------

    def _stop(self, number: int) -> None:
        """End all trainings and wait for them; unfinished settings are queued to run again."""
        name = signal.Signals(number).name
        self._display.note(
            f"{name}: trainings write checkpoints and end; a second signal ends them at once"
        )
        for setting in self._open:
            for handle in setting.running.values():
                handle.terminate()
        while any(handle.poll() is None for u in self._open for handle in u.running.values()):
            time.sleep(POLL_S)
        for setting in self._open:
            for seed in [
                seed for seed in setting.running if is_finished(self._place(setting, seed))
            ]:
                del setting.running[seed]
                self._value(setting, seed)
            if setting.pruned or setting.error or setting.over:
                self._record_one(setting)
            else:
                self._study.lose(setting.claim)
        self._open.clear()

    def _place(self, setting: RunningSetting, seed: int) -> Path:
        return self._folder.trial(setting.claim.setting) / f"seed_{seed}"
