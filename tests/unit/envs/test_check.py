"""The environment check finds what is broken and passes what is not."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support.envs import Broken, Constant, Drift, Fickle, KeptDrift

from exarl.envs.check import Finding, check_environment
from exarl.errors import ConfigError
from exarl.types import Arrays

FINITE = "observations finite and of their space"
SAME_SEED = "same seed, same episode"
ISOLATED = "works in a process of its own"
KEPT = "running episodes can be kept"


class Forgetful(KeptDrift):
    """Keeps its place but not its random stream."""

    def set_state(self, state: Arrays) -> None:
        self._at = state["at"]


class Outside(Constant):
    """Leaves its space after some steps."""

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return (observation * (5 if self._steps == 20 else 1), *rest)


def checked(factory: Any, **options: Any) -> dict[str, Finding]:
    id = f"Checked{uuid.uuid4().hex}-v0"
    gymnasium.register(id, entry_point=factory, **options)
    try:
        findings = {finding.check: finding for finding in check_environment(id, {})}
    finally:
        gymnasium.registry.pop(id)
    assert FINITE in findings
    assert SAME_SEED in findings
    assert KEPT in findings
    return findings


def failed(findings: dict[str, Finding]) -> set[str]:
    return {name for name, finding in findings.items() if finding.passed is False}


@pytest.mark.parametrize("kind", [Drift, KeptDrift])
def test_a_sound_environment_passes(kind: Any) -> None:
    findings = checked(kind)
    assert failed(findings) == set()
    assert findings[KEPT].passed is (True if kind is KeptDrift else None)
    assert findings["episodes end"].passed


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (lambda: Broken("observation", far=9), FINITE),
        (lambda: Broken("reward", far=9), FINITE),
        (lambda: Broken("shape", far=9), FINITE),
        (Outside, FINITE),
        (lambda: Fickle(np.inf), SAME_SEED),
        (Forgetful, KEPT),
    ],
    ids=["NaN", "infinite reward", "shape", "outside", "not deterministic", "snapshot"],
)
def test_a_broken_environment_is_found(factory: Any, expected: str) -> None:
    findings = checked(factory)
    assert expected in failed(findings)
    assert findings[expected].detail


def test_whatever_an_environment_raises_is_a_finding() -> None:
    findings = checked(lambda: Broken("raise", far=9))
    assert "the simulation diverged" in findings[FINITE].detail
    assert FINITE in failed(findings)


def test_an_endless_environment_is_remarked_upon_unless_it_is_cut() -> None:
    assert checked(Constant)["episodes end"].passed is None
    cut = checked(Constant, max_episode_steps=30)["episodes end"]
    assert cut.passed
    assert "30" in cut.detail


def test_spaces_no_agent_can_use_are_a_failure() -> None:
    class Wordy(Constant):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gymnasium.spaces.Tuple([gymnasium.spaces.Text(2)])

    assert "spaces" in failed(checked(Wordy))


class Littering(Drift):
    """Writes where it stands, and to the terminal."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        Path("litter.txt").write_text("x")
        sys.stdout.write("solver started\n")
        return super().reset(seed=seed)


class Shared(Drift):
    """All of them have one place."""

    places: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        found = super().reset(seed=seed)
        Shared.places = self._at
        return found

    def step(self, action: Any) -> Any:
        self._at = Shared.places
        found = super().step(action)
        Shared.places = self._at
        return found


class Aware(Drift):
    """Asks who it is."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        assert context.work_dir.is_dir()


def test_files_and_words_in_the_wrong_place_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    findings = checked(Littering)
    assert failed(findings) == {"files of its own"}
    assert "litter.txt" in findings["files of its own"].detail
    assert "context.work_dir" in findings["files of its own"].hint
    assert "'solver started'" in findings[ISOLATED].detail
    assert "logs/env_" in findings[ISOLATED].hint


def test_what_two_environments_share_is_found() -> None:
    findings = checked(Shared)
    assert failed(findings) == set()
    assert findings["two in one process"].passed is None
    assert "--env_isolation process" in findings["two in one process"].hint


def test_an_environment_may_ask_who_it_is() -> None:
    findings = checked(Aware)
    assert failed(findings) == set()
    assert findings["files of its own"].passed
    assert findings[ISOLATED].passed


def test_an_environment_that_cannot_be_isolated_is_no_failure() -> None:
    found = checked(lambda: Drift())[ISOLATED]  # noqa: PLW0108
    assert found.passed is None
    assert "module that can be imported" in found.detail


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (lambda: Broken("shape", far=9), ["(1,)", "(2,)"]),
        (Outside, ["beyond the bounds"]),
        (lambda: Broken("observation", far=9), ["terminated"]),
    ],
    ids=["shape", "outside", "NaN"],
)
def test_what_to_change_is_said(factory: Any, words: list[str]) -> None:
    hint = checked(factory)[FINITE].hint
    assert all(word in hint for word in words), hint


def test_the_speed_comes_with_limits_to_set() -> None:
    found = checked(Drift)["speed"]
    assert "us per step" in found.detail and "ms per reset" in found.detail
    assert "--step_timeout 5 " in found.hint


def test_remarks_are_one_line_each() -> None:
    for finding in checked(lambda: Broken("shape")).values():
        assert "\n" not in finding.detail


def test_an_unknown_environment_raises() -> None:
    with pytest.raises(ConfigError, match="CartPole-v1"):
        check_environment("CartPoll-v1", {})
