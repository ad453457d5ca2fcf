"""A run that names what is outside EXARL is refused unless its seal is this user's, and still fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exarl.config import FAMILIES
from exarl.errors import ConfigError
from exarl.records.trust import check_run, check_study, sealed_again, sealed_run, sealed_study

FREE = ("total_steps",)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()


def run(env: str = "mine:Mine-v0", **learner: Any) -> dict[str, Any]:
    named = {"env": env, "total_steps": 10, **learner}
    return {**{family: {} for family in FAMILIES}, "learner": named}


def study(folder: Path, env: str) -> dict[str, Any]:
    return {"folder": str(folder), "config": None, "space": {}, "train": {"env": env}}


def test_what_names_nothing_outside_needs_no_seal(tmp_path: Path) -> None:
    plain = run("CartPole-v1")
    check_run(tmp_path, plain, FREE)
    assert sealed_run(tmp_path, plain, FREE) == plain


def test_an_unsealed_run_is_refused_and_a_sealed_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"env 'mine:Mine-v0'.*--trust"):
        check_run(tmp_path, run(), FREE)
    check_run(tmp_path, sealed_run(tmp_path, run(), FREE), FREE)


def test_a_seal_is_of_one_place_and_of_what_it_was_made_for(tmp_path: Path) -> None:
    sealed = sealed_run(tmp_path, run(), FREE)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(ConfigError):
        check_run(tmp_path / "elsewhere", sealed, FREE)
    for key, value in (("env", "other:Other-v0"), ("seed", 5)):
        with pytest.raises(ConfigError):
            check_run(tmp_path, {**sealed, "learner": {**sealed["learner"], key: value}}, FREE)
    with pytest.raises(ConfigError):
        check_run(tmp_path, {**sealed, "agent": {"gamma": 0.5}}, FREE)
    longer = {**sealed, "learner": {**sealed["learner"], "total_steps": 99}}
    check_run(tmp_path, longer, FREE)


def test_only_what_this_process_has_trusted_is_sealed_again(tmp_path: Path) -> None:
    trusted = run(seed=1)
    assert "seal" in sealed_again(tmp_path, run(seed=1), trusted, FREE)
    assert "seal" in sealed_again(tmp_path, run(seed=1, total_steps=77), trusted, FREE)
    for changed in (run("other:Other-v0", seed=1), run(seed=2), run(seed=1, more=3)):
        assert "seal" not in sealed_again(tmp_path, changed, trusted, FREE)


def test_studies_are_sealed_in_the_same_way(tmp_path: Path) -> None:
    check_study(tmp_path, study(tmp_path, "CartPole-v1"))
    with pytest.raises(ConfigError, match="--trust"):
        check_study(tmp_path, study(tmp_path, "mine:Mine-v0"))
    sealed = sealed_study(tmp_path, study(tmp_path, "mine:Mine-v0"), None)
    check_study(tmp_path, sealed)
    with pytest.raises(ConfigError):
        check_study(tmp_path, {**sealed, "train": {"env": "other:Other-v0"}})
    plain = study(tmp_path, "CartPole-v1")
    assert sealed_study(tmp_path, plain, {"seal": "before"}) == {**plain, "seal": "before"}
