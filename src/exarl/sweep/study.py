"""A study on disk: its folder, its journal, and who is working on which setting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from exarl.errors import ConfigError
from exarl.records import trust
from exarl.records.directory import check_place, read_json, reason, write_json
from exarl.sweep.owner import Owner
from exarl.sweep.samplers import SETTING, known_points, make_pruner, make_sampler, suggest
from exarl.sweep.space import Point, Value
from exarl.sweep.spec import StudyConfig, changed, read_study, same_study

NAME = "sweep"
_LOCK_GRACE_S = 60


@dataclass(frozen=True)
class StudyFolder:
    """Paths of a study. Touches no disk itself."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "study.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.log"

    @property
    def workers(self) -> Path:
        return self.path / "workers"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def best(self) -> Path:
        return self.path / "best.json"

    @property
    def table(self) -> Path:
        return self.path / "trials.csv"

    def trial(self, setting: int) -> Path:
        return self.path / "trials" / f"{setting:04d}"


class Asked(NamedTuple):
    """A setting that this worker has taken: its number, its values, and Optuna's trial."""

    setting: int
    point: Mapping[str, Value]
    trial: Any


class Row(NamedTuple):
    """How a setting stands: ``waiting running complete pruned failed``."""

    setting: int
    state: str
    point: Mapping[str, Value]
    value: float | None
    seeds: Mapping[str, float]
    error: str
    seconds: float | None


def find_study(
    path: Path, asked: StudyConfig | None = None, changes: Mapping[str, Any] | None = None
) -> StudyConfig:
    """The study stored in ``path``, else the one ``asked`` for; nothing is written.

    ConfigError when the folder holds another study, or none and none is asked for. ``changes``
    replace options of a stored study that may change.
    """
    folder = StudyFolder(path)
    if folder.config.is_file():
        stored = read_study(folder.config)
        if asked is not None:
            same_study(stored, asked, path)
        return changed(stored, changes or {})
    if asked is None:
        raise ConfigError(f"{path} holds no study (study.json is missing)")
    check_place(path)
    return asked


def check_stored(path: Path) -> None:
    """ConfigError when the study in ``path`` is another user's and names what is outside of EXARL."""
    folder = StudyFolder(path)
    if folder.config.is_file():
        trust.check_study(path, read_json(folder.config))


def store_study(path: Path, config: StudyConfig) -> None:
    """Make the folder of a study, with ``study.json`` in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = StudyFolder(path).config
        before = read_json(file) if file.is_file() else None
        write_json(file, trust.sealed_study(path, config.to_json(), before))
    except OSError as error:
        raise ConfigError(f"cannot write to {path}: {reason(error)}") from error


class Study:
    """The journal of a study, seen by one worker. Everything told is on disk when a call returns."""

    def __init__(
        self, folder: StudyFolder, config: StudyConfig, owner: Owner | None = None
    ) -> None:
        import optuna
        from optuna.storages import JournalStorage, journal

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.folder, self.config, self._owner = folder, config, owner
        self._optuna = optuna
        # A lock by a file that must not exist yet: right on NFS since its version 3 and on Lustre, and
        # unlike a link it does not mind that a disk has different names on different hosts.
        path = str(folder.journal.absolute())
        self._mutex = journal.JournalFileOpenLock(
            str(folder.path.absolute() / "study"), _LOCK_GRACE_S
        )
        with self._alone():
            lock = journal.JournalFileOpenLock(path)
            _mend(folder.journal, lock)
            backend = journal.JournalFileBackend(path, lock)
            self._storage = JournalStorage(backend)
            self.optuna_study = optuna.create_study(
                storage=self._storage,
                study_name=NAME,
                direction="maximize",
                sampler=make_sampler(config),
                pruner=make_pruner(config),
                load_if_exists=True,
            )

    def prepare(self, retry_failed: bool = False) -> list[int]:
        """Queue every setting that nobody has run and nobody is running; those lost with their worker.

        A setting that failed by itself stays as it is, unless ``retry_failed``.
        """
        with self._alone():
            newest = self._newest()
            known = known_points(self.config)
            lost = []
            for setting in range(self.config.trials):
                trial = newest.get(setting)
                point: Point = known[setting] if known else {}
                if trial is not None:
                    if not self._to_be_run_again(trial, retry_failed):
                        continue
                    lost.append(setting)
                    point = dict(trial.params or trial.system_attrs.get("fixed_params", point))
                self.optuna_study.enqueue_trial(dict(point), user_attrs={SETTING: setting})
            return lost

    def ask(self) -> Asked | None:
        """Take the next setting; None when there is none at the moment."""
        states = self._optuna.trial.TrialState
        with self._alone():
            waiting = self._trials((states.WAITING,))
            for frozen in sorted(waiting, key=lambda trial: int(trial.user_attrs[SETTING])):
                identity = frozen._trial_id
                if not self._storage.set_trial_state_values(identity, states.RUNNING):
                    continue
                trial = self._optuna.trial.Trial(self.optuna_study, identity)
                if self._owner is not None:
                    trial.set_user_attr("owner", self._owner.card)
                point = suggest(trial, self.config.space)
                return Asked(int(frozen.user_attrs[SETTING]), point, trial)
        return None

    def complete(self, asked: Asked, seeds: Mapping[int, float], value: float) -> None:
        """The setting has this value, summed up from those of its seeds."""
        told = {str(seed): number for seed, number in seeds.items()}
        self._tell(asked, {"seeds": told}, "COMPLETE", value)

    def prune(self, asked: Asked) -> None:
        """The setting was stopped early; its last intermediate value stays with it."""
        self._tell(asked, {}, "PRUNED")

    def fail(self, asked: Asked, error: str) -> None:
        """The setting has failed."""
        self._tell(asked, {"error": error}, "FAIL")

    def lose(self, asked: Asked) -> None:
        """The setting was given up by no fault of its own: it is to be run again."""
        self._tell(asked, {"lost": True}, "FAIL")

    def report(self, asked: Asked, mark: int, value: float) -> bool:
        """Note how the setting does at a mark; whether it is to be stopped early."""
        gone = self._optuna.exceptions.UpdateFinishedTrialError
        with contextlib.suppress(gone):
            asked.trial.report(value, mark)
            return bool(asked.trial.should_prune())
        return True

    def _tell(
        self, asked: Asked, attributes: Mapping[str, Any], state: str, value: float | None = None
    ) -> None:
        gone = self._optuna.exceptions.UpdateFinishedTrialError
        with contextlib.suppress(gone):  # we were taken for dead: whoever runs it again tells
            for name, told in attributes.items():
                asked.trial.set_user_attr(name, told)
            states = self._optuna.trial.TrialState
            self.optuna_study.tell(asked.trial, value, states[state], skip_if_finished=True)

    def waiting(self) -> int:
        """How many settings are queued."""
        return len(self._trials((self._optuna.trial.TrialState.WAITING,)))

    def running(self) -> int:
        """How many settings somebody is running."""
        return len(self._trials((self._optuna.trial.TrialState.RUNNING,)))

    def rows(self) -> list[Row]:
        """All settings in order, each by its newest trial."""
        return [_row(setting, trial) for setting, trial in sorted(self._newest().items())]

    def _to_be_run_again(self, trial: Any, retry_failed: bool) -> bool:
        states = self._optuna.trial.TrialState
        if trial.state == states.RUNNING:
            if self._owner is None or self._owner.sees(trial.user_attrs.get("owner")):
                return False
            self._storage.set_trial_user_attr(trial._trial_id, "lost", True)
            self.optuna_study.tell(trial.number, state=states.FAIL)
            return True
        return trial.state == states.FAIL and ("lost" in trial.user_attrs or retry_failed)

    def _newest(self) -> dict[int, Any]:
        return {int(trial.user_attrs[SETTING]): trial for trial in self._trials(None)}

    def _trials(self, states: Sequence[Any] | None) -> list[Any]:
        found = self.optuna_study.get_trials(deepcopy=False, states=states)
        return [trial for trial in found if SETTING in trial.user_attrs]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self._mutex.acquire()
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # held so long that another has taken it
                self._mutex.release()


def _row(setting: int, trial: Any) -> Row:
    attributes, name = trial.user_attrs, str(trial.state.name).lower()
    state = {"fail": "waiting" if "lost" in attributes else "failed"}.get(name, name)
    seconds = trial.duration.total_seconds() if trial.duration is not None else None
    error, seeds = str(attributes.get("error", "")), attributes.get("seeds", {})
    point = trial.params or trial.system_attrs.get("fixed_params", {})
    value = trial.value if state in ("complete", "pruned") else None
    return Row(setting, state, point, value, seeds, error, seconds)


def _mend(journal: Path, lock: Any) -> None:
    """Cut off a last line that a killed process or a full disk left half-written."""
    if not journal.is_file():
        return
    lock.acquire()
    try:
        with journal.open("r+b") as file:
            data = file.read()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                file.truncate(whole)
    finally:
        lock.release()
