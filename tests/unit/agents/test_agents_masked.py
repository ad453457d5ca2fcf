"""Agents never choose what an environment forbids, and learn what is best of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.masked import Bandit, Pair, Showing, Telling

import exarl

QUICK: dict[str, Any] = {
    "block_steps": 64,
    "progress": False,
    "hidden": [16],
    "envs_per_actor": 2,
    "checkpoint_interval": 1e9,
}
AGENTS: dict[str, dict[str, Any]] = {
    "PPO-v0": {},
    "A2C-v0": {},
    "DQN-v0": {"learning_starts": 32, "n_step": 2, "epsilon": 0.5},
    "SAC-v0": {"learning_starts": 32},
    "Random-v0": {},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def played(kind: type[Bandit], agent: str, seed: int = 0, **parameters: Any) -> Path:
    """The run of an agent that has chosen nothing forbidden, in training and in an evaluation."""
    kind.chosen = kind.forbidden = 0
    settings = {**QUICK, "total_steps": 256, **AGENTS[agent], **parameters}
    result = exarl.train(env=kind, agent=agent, seed=seed, **settings)
    assert result is not None
    assert kind.chosen >= settings["total_steps"]
    if settings.get("env_isolation") != "process":
        exarl.evaluate(result.run_dir, episodes=5)
    assert kind.forbidden == 0
    return result.run_dir


@pytest.mark.parametrize("agent", AGENTS)
def test_nothing_forbidden_is_chosen(agent: str) -> None:
    played(Bandit, agent)


@pytest.mark.parametrize("kind", [Telling, Showing, Pair])
@pytest.mark.parametrize("agent", ["PPO-v0", "DQN-v0"])
def test_masks_are_found_where_the_environment_has_them(agent: str, kind: type[Bandit]) -> None:
    played(kind, agent)
