"""The environment check finds what is broken and passes what is not."""

from __future__ import annotations

import uuid
from typing import Any

import gymnasium
import numpy as np
import pytest
from helpers_envs import Broken, Constant, Drift, Fickle, KeptDrift

from exarl.envs.check import Finding, check_environment
from exarl.errors import ConfigError
from exarl.types import Arrays

FINITE = "observations finite and of their space"
SAME_SEED = "same seed, same episode"
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
            self.action_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)])

    assert "spaces" in failed(checked(Wordy))


def test_remarks_are_one_line_each() -> None:
    for finding in checked(lambda: Broken("shape")).values():
        assert "\n" not in finding.detail


def test_an_unknown_environment_raises() -> None:
    with pytest.raises(ConfigError, match="CartPole-v1"):
        check_environment("CartPoll-v1", {})
