"""The journal: what is asked, told, lost with its worker and asked again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.sweep import config

from exarl.records import alive
from exarl.sweep.owner import Owner
from exarl.sweep.study import Study, StudyFolder


class DeadOwner(Owner):
    """A worker whose process is gone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.card["born"] = -1


def ask_all(study: Study) -> list[Any]:
    asked = []
    while (one := study.ask()) is not None:
        asked.append(one)
    return asked


def test_settings_are_asked_once_and_values_are_kept(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    with Owner(folder.workers) as me:
        study = Study(folder, config(), me)
        assert study.prepare() == []
        asked = ask_all(study)
        assert [one.setting for one in asked] == [0, 1, 2, 3]
        study.complete(asked[0], {1: 3.0, 2: 5.0}, 4.0)
        study.fail(asked[1], "no luck")
        study.report(asked[2], 1, 0.5)
        study.prune(asked[2])
        study.lose(asked[3])
        again = Study(folder, config(), me)
        assert [row.state for row in again.rows()] == ["complete", "failed", "pruned", "waiting"]
        assert again.rows()[0].seeds == {"1": 3.0, "2": 5.0}
        assert again.rows()[1].error == "no luck"
        assert again.rows()[2].value == 0.5
        assert again.prepare() == [3]
        assert again.prepare() == []  # it waits already
        (rerun,) = ask_all(again)
        assert (rerun.setting, rerun.point) == (3, asked[3].point)
        assert again.prepare(retry_failed=True) == [1]


def test_only_the_settings_of_the_dead_are_run_again(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    with Owner(folder.workers) as me, DeadOwner(folder.workers) as dead:
        mine, theirs = Study(folder, config(), me), Study(folder, config(), dead)
        mine.prepare()
        held, lost = mine.ask(), theirs.ask()
        assert held is not None and lost is not None
        third = Study(folder, config(), me)
        assert third.prepare() == [lost.setting]
        states = {row.setting: row.state for row in third.rows()}
        assert states[held.setting] == "running"
        theirs.complete(lost, {1: 1.0}, 1.0)  # too late: another worker has it now
        assert {row.setting: row.state for row in third.rows()}[lost.setting] == "waiting"
        first = third.ask()
        assert first is not None and (first.setting, first.point) == (lost.setting, lost.point)


def test_a_worker_elsewhere_lives_by_its_sign(tmp_path: Path) -> None:
    with Owner(tmp_path) as me:
        card = {**me.card, "name": "another_1", "host": "another", "machine": "another", "pid": 1}
        (tmp_path / card["name"]).touch()
        assert me.sees(card)
        long_ago = (tmp_path / card["name"]).stat().st_mtime - alive.SILENT_S - 1
        os.utime(tmp_path / card["name"], (long_ago, long_ago))
        assert not me.sees(card)
        (tmp_path / card["name"]).unlink()
        assert me.sees(me.card)
        assert not me.sees(None)
    assert not list(tmp_path.iterdir())


def test_a_half_written_line_is_cut_off(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    with Owner(folder.workers) as me:
        study = Study(folder, config(), me)
        study.prepare()
        asked = study.ask()
        assert asked is not None
        study.complete(asked, {1: 7.0}, 7.0)
        with folder.journal.open("ab") as file:
            file.write(b'{"op_code":4,"worker')
        again = Study(folder, config(), me)
        assert again.rows()[0].value == 7.0
        other = again.ask()
        assert other is not None
        again.complete(other, {1: 8.0}, 8.0)
        assert [row.value for row in Study(folder, config(), me).rows()[:2]] == [7.0, 8.0]


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_what_is_asked_depends_on_seed_number_and_history(sampler: str, tmp_path: Path) -> None:
    """Twelve settings told one by one, in two folders; one of them loses a worker on the way."""

    def go(path: Path, seed: int, lose: int | None = None) -> list[Any]:
        study_config = config(sampler=sampler, sweep_seed=seed, trials=12)
        folder = StudyFolder(path)
        points: dict[int, Any] = {}
        with Owner(folder.workers) as me:
            study = Study(folder, study_config, me)
            study.prepare()
            while (asked := study.ask()) is not None:
                points[asked.setting] = dict(asked.point)
                if asked.setting == lose:
                    study.lose(asked)
                    lose = None
                    study.prepare()
                    continue
                value = -abs(asked.point["learning_rate"] - 1e-3) + asked.point["gamma"]
                study.complete(asked, {1: value}, value)
        return [points[n] for n in sorted(points)]

    once = go(tmp_path / "a", 5)
    assert len(once) == 12
    assert go(tmp_path / "b", 5, lose=11) == once
    assert go(tmp_path / "c", 6)[:3] != once[:3]


def test_two_workers_never_get_the_same_setting(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    with Owner(folder.workers) as one, Owner(folder.workers) as two:
        studies = [Study(folder, config(trials=10), who) for who in (one, two)]
        for study in studies:
            study.prepare()
        taken = []
        while True:
            got = [study.ask() for study in studies]
            taken += [asked.setting for asked in got if asked is not None]
            if None in got:
                break
        assert sorted(taken) == list(range(10))
