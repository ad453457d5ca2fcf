"""A study on disk: its folder, its journal, and which worker runs which setting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from exarl.errors import ConfigError
from exarl.records import trust
from exarl.records.directory import check_place, read_json, reason, write_json
from exarl.sweep.owner import Owner
from exarl.sweep.samplers import SETTING, known_points, make_pruner, make_sampler, suggest
from exarl.sweep.space import Point, Value
from exarl.sweep.spec import StudyConfig, changed, read_study, same_study

if TYPE_CHECKING:
    from optuna.storages.journal import BaseJournalFileLock
    from optuna.trial import FrozenTrial, Trial, TrialState

NAME = "sweep"
_LOCK_GRACE_S = 60


class StudyFolder:
    """Paths of a study; nothing is read or written here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.journal = path / "study.json", path / "journal.log"
        self.workers = path / "workers"
        self.best, self.table = path / "best.json", path / "trials.csv"
        self.report = path / "report.html"

    def trial(self, setting: int) -> Path:
        return self.path / "trials" / f"{setting:04d}"


class Claim(NamedTuple):
    """A setting that this worker runs: its number, its values, and Optuna's trial."""

    setting: int
    point: Mapping[str, Value]
    trial: Trial


class SettingRow(NamedTuple):
    """The state and result of a setting; ``state`` is waiting, running, complete, pruned or failed."""

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

    ``changes`` replace options of a stored study. ConfigError when the folder contains another study
    than the one asked for, or when there is neither.
    """
    folder = StudyFolder(path)
    if folder.config.is_file():
        stored = read_study(folder.config)
        if asked is not None:
            same_study(stored, asked, path)
        return changed(stored, changes or {})
    if asked is None:
        raise ConfigError(f"{path} contains no study (study.json is missing)")
    check_place(path)
    return asked


def check_stored(path: Path) -> None:
    """ConfigError when the study in ``path`` is not this user's and names code outside EXARL."""
    folder = StudyFolder(path)
    if folder.config.is_file():
        trust.check_study(path, read_json(folder.config))


def store_study(path: Path, config: StudyConfig) -> None:
    """Create the folder of a study with its ``study.json``; ConfigError when that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = StudyFolder(path).config
        before = read_json(file) if file.is_file() else None
        write_json(file, trust.sealed_study(path, config.to_json(), before))
    except OSError as error:
        raise ConfigError(f"cannot write to {path}: {reason(error)}") from error


class Study:
    """The journal of a study, as one worker uses it. What a call records is on disk when it returns."""

    def __init__(
        self, folder: StudyFolder, config: StudyConfig, owner: Owner | None = None
    ) -> None:
        import optuna
        from optuna.storages import JournalStorage, journal

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.folder, self.config, self._owner = folder, config, owner
        self._optuna = optuna
        # A lock by a file that must not exist yet: correct on NFS from version 3 on and on Lustre, and,
        # unlike a link, also where hosts mount a disk under different names.
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
        """Queue every setting that has neither ended nor is running.

        Returns those that ran before: their worker is gone or, with ``retry_failed``, they failed.
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

    def ask(self) -> Claim | None:
        """Claim the next queued setting; None when no setting is queued."""
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
                return Claim(int(frozen.user_attrs[SETTING]), point, trial)
        return None

    def complete(self, claim: Claim, seeds: Mapping[int, float], value: float) -> None:
        """Record the value of a setting and the values of its seeds."""
        by_seed = {str(seed): number for seed, number in seeds.items()}
        self._tell(claim, {"seeds": by_seed}, "COMPLETE", value)

    def prune(self, claim: Claim) -> None:
        """Record that the pruner stopped the setting; its last intermediate value is kept."""
        self._tell(claim, {}, "PRUNED")

    def fail(self, claim: Claim, error: str) -> None:
        """Record that the setting failed."""
        self._tell(claim, {"error": error}, "FAIL")

    def lose(self, claim: Claim) -> None:
        """Record that the setting was interrupted and must run again."""
        self._tell(claim, {"lost": True}, "FAIL")

    def report(self, claim: Claim, mark: int, value: float) -> bool:
        """Record the setting's value at a mark; return whether the pruner stops it."""
        gone = self._optuna.exceptions.UpdateFinishedTrialError
        with contextlib.suppress(gone):
            claim.trial.report(value, mark)
            return bool(claim.trial.should_prune())
        return True

    def _tell(
        self, claim: Claim, attributes: Mapping[str, object], state: str, value: float | None = None
    ) -> None:
        gone = self._optuna.exceptions.UpdateFinishedTrialError
        with contextlib.suppress(
            gone
        ):  # this worker was taken for dead; another one runs the setting again and records it
            for name, attribute in attributes.items():
                claim.trial.set_user_attr(name, attribute)
            states = self._optuna.trial.TrialState
            self.optuna_study.tell(claim.trial, value, states[state], skip_if_finished=True)

    def waiting(self) -> int:
        """The number of queued settings."""
        return len(self._trials((self._optuna.trial.TrialState.WAITING,)))

    def running(self) -> int:
        """The number of settings that a worker is running."""
        return len(self._trials((self._optuna.trial.TrialState.RUNNING,)))

    def rows(self) -> list[SettingRow]:
        """All settings in order, each by its newest trial."""
        return [_row(setting, trial) for setting, trial in sorted(self._newest().items())]

    def _to_be_run_again(self, trial: FrozenTrial, retry_failed: bool) -> bool:
        states = self._optuna.trial.TrialState
        if trial.state == states.RUNNING:
            if self._owner is None or self._owner.sees(trial.user_attrs.get("owner")):
                return False
            self._storage.set_trial_user_attr(trial._trial_id, "lost", True)
            self.optuna_study.tell(trial.number, state=states.FAIL)
            return True
        return trial.state == states.FAIL and ("lost" in trial.user_attrs or retry_failed)

    def _newest(self) -> dict[int, FrozenTrial]:
        return {int(trial.user_attrs[SETTING]): trial for trial in self._trials(None)}

    def _trials(self, states: Sequence[TrialState] | None) -> list[FrozenTrial]:
        found = self.optuna_study.get_trials(deepcopy=False, states=states)
        return [trial for trial in found if SETTING in trial.user_attrs]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self._mutex.acquire()
        try:
            yield
        finally:
            with contextlib.suppress(
                RuntimeError
            ):  # held for so long that another worker has taken it
                self._mutex.release()


def _row(setting: int, trial: FrozenTrial) -> SettingRow:
    attributes, name = trial.user_attrs, str(trial.state.name).lower()
    state = {"fail": "waiting" if "lost" in attributes else "failed"}.get(name, name)
    seconds = trial.duration.total_seconds() if trial.duration is not None else None
    error, seeds = str(attributes.get("error", "")), attributes.get("seeds", {})
    point = trial.params or trial.system_attrs.get("fixed_params", {})
    value = trial.value if state in ("complete", "pruned") else None
    return SettingRow(setting, state, point, value, seeds, error, seconds)


def _mend(journal: Path, lock: BaseJournalFileLock) -> None:
    """Remove a last line that a killed process or a full disk left incomplete."""
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
