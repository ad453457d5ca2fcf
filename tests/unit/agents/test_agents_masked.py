"""Agents never choose what an environment forbids, wherever they act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.masked import Bandit, Closed, Pair, Showing

import exarl
from exarl.envs.local import register_local
from exarl.errors import ConfigError, EnvironmentFailure

QUICK: dict[str, Any] = {
    "total_steps": 128,
    "block_steps": 32,
    "progress": False,
    "hidden": [8],
    "envs_per_actor": 2,
}
CASES: dict[str, tuple[type[Bandit], dict[str, Any]]] = {
    "PPO, factors": (Pair, {"agent": "PPO-v0", "epochs": 1}),
    "DQN": (Showing, {"agent": "DQN-v0", "learning_starts": 32, "n_step": 2, "dueling": True}),
    "PQN": (Showing, {"agent": "PQN-v0", "epochs": 1, "epsilon_steps": 64}),
    "Random": (Pair, {"agent": "Random-v0"}),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def trained(kind: type[Bandit], **parameters: Any) -> Path:
    kind.chosen = kind.forbidden = 0
    result = exarl.train(env=kind, **(QUICK | parameters))
    assert result is not None
    return result.run_dir


@pytest.mark.parametrize("case", CASES)
def test_nothing_forbidden_is_chosen(case: str) -> None:
    kind, parameters = CASES[case]
    run = trained(kind, **parameters)
    exarl.evaluate(run, episodes=3)
    assert kind.chosen > QUICK["total_steps"]
    assert kind.forbidden == 0


def test_without_the_mask_the_forbidden_is_chosen() -> None:
    trained(Bandit, agent="Random-v0", drop_observations="action_mask")
    assert Bandit.forbidden > 10


def test_a_policy_is_told_what_is_allowed() -> None:
    policy = exarl.load(trained(Bandit, agent="Random-v0"))
    assert policy.observation_space == Bandit.observation_space
    seen, only = np.zeros((5, 5), np.float32), np.eye(5, dtype=np.int8)
    np.testing.assert_array_equal(policy.act(seen, only), range(5))
    assert policy.act(seen[0], only[3]) == 3
    with pytest.raises(ValueError, match="act\\(observation, mask\\)"):
        policy.act(seen[0])
    with pytest.raises(ValueError, match="allows no action"):
        policy.act(seen[0], 0 * only[0])


def test_a_controller_is_told_what_is_allowed() -> None:
    def best(observation: np.ndarray, mask: np.ndarray) -> int:
        return int(np.where(mask, observation, -1).argmax())

    result = exarl.evaluate(best, register_local(Bandit), episodes=2)
    assert result is not None
    assert result.reward_mean == 10


def test_nothing_allowed_ends_the_run_with_the_name_of_the_environment() -> None:
    with pytest.raises(EnvironmentFailure, match=r"Closed.*allows no action"):
        trained(Closed, agent="Random-v0")


def test_the_first_action_always_may_be_forbidden() -> None:
    with pytest.raises(ConfigError, match="action_type fixed"):
        trained(Bandit, agent="Random-v0", action_type="fixed")
