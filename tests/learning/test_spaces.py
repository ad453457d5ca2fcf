"""Agents learn with action masks, with more combinations than can be listed, and with mixed
observations; several seeds each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.masked import Bandit, Pair, Telling
from tests.support.separable import Camera, Doors, Flows, Keys, Switches, Valves

import exarl

pytestmark = pytest.mark.slow

AT_ONCE: dict[str, Any] = {"gamma": 0.0, "progress": False}
DQN = {"agent": "DQN-v0", "epsilon_decay": 0.999, "learning_starts": 500, "updates_per_step": 0.5}
PPO = {"agent": "PPO-v0", "block_steps": 512, "learning_rate": 2e-3, "gae_lambda": 0.0}
A2C = {
    "agent": "A2C-v0",
    "envs_per_actor": 16,
    "block_steps": 16,
    "learning_rate": 5e-3,
    "gae_lambda": 0.0,
    "normalize_advantages": True,
}
LEARNERS = {
    "DQN": {**DQN, "total_steps": 8_000},
    "PPO": {**PPO, "total_steps": 25_000},
    "A2C": {**A2C, "total_steps": 60_000},
}
IMAGES = {"model_type": "CNN", "filters": [8, 16], "kernels": [4, 3], "strides": [2, 1]}


def reward(folder: Path, **parameters: Any) -> float:
    """The mean return of 20 episodes after training."""
    result = exarl.train(output_dir=str(folder), **(AT_ONCE | parameters))
    assert result is not None
    played = exarl.evaluate(result.run_dir, episodes=20)
    assert played is not None
    return played.reward_mean


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("agent", LEARNERS)
def test_the_best_of_what_is_allowed(tmp_path: Path, agent: str, seed: int) -> None:
    """10 is the best policy, 4 chance among what is allowed; the best action of all is forbidden."""
    Bandit.forbidden = 0
    assert reward(tmp_path, env=Bandit, seed=seed, **LEARNERS[agent]) > 8
    assert Bandit.forbidden == 0


OTHERS: dict[str, tuple[type[Bandit], dict[str, Any]]] = {
    "A2C, LSTM": (Telling, {"agent": "A2C-v0", "model_type": "LSTM", "units": 8}),
    "A3C, normalised": (Telling, {"agent": "A3C-v0", "normalize_observations": True}),
    "DQN, LSTM": (Pair, {**DQN, "model_type": "LSTM", "units": 8}),
    "DQN, frames": (Pair, {**DQN, "frame_stack": 2, "priority_scale": 0.6, "n_step": 3}),
    "DQN, targets of actors": (Telling, {**DQN, "data_generation": "actor", "dueling": True}),
    "DQN, device": (Pair, {**DQN, "replay_device": "device"}),
    "SAC": (Telling, {"agent": "SAC-v0", "learning_starts": 300, "updates_per_step": 0.2}),
}


@pytest.mark.parametrize("case", OTHERS)
def test_nothing_forbidden_is_chosen(tmp_path: Path, case: str) -> None:
    kind, parameters = OTHERS[case]
    kind.forbidden = 0
    reward(tmp_path, env=kind, total_steps=1_500, **parameters)
    assert kind.forbidden == 0


def test_masks_reach_other_processes(tmp_path: Path) -> None:
    """Each forbidden action would end its episode early with a reward of -10."""
    isolated = {"env": "tests.support.masked:Bandit-v0", "env_isolation": "process"}
    result = exarl.train(agent="Random-v0", total_steps=600, output_dir=str(tmp_path), **isolated)
    assert result is not None
    assert result.curve["episode_reward_min"].min() >= 0
    assert (result.curve["episode_len_mean"] == 10).all()


@pytest.mark.parametrize("agent", ["PPO-v0", "DQN-v0"])
def test_masks_of_functions_on_the_device(tmp_path: Path, agent: str) -> None:
    """What is forbidden costs 100 and would show as a negative return."""
    fused = {"env": "tests.support.masked:Gates-v0", "workflow": "fused", "n_envs": 16}
    settings = {"agent": agent, "total_steps": 20_000, "block_steps": 32, "learning_rate": 1e-3}
    result = exarl.train(output_dir=str(tmp_path), **AT_ONCE, **fused, **settings)
    assert result is not None
    assert result.curve["episode_reward_min"].min() >= 0
    assert result.curve["episode_reward_mean"][-1] > 8


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("agent", LEARNERS)
@pytest.mark.parametrize("kind", [Keys, Switches])
def test_more_combinations_than_can_be_listed(
    tmp_path: Path, kind: type[Keys], agent: str, seed: int
) -> None:
    """16 is the best policy; 8 is a policy that does not look, in 10**8 or 2**20 combinations."""
    assert reward(tmp_path, env=kind, seed=seed, **LEARNERS[agent]) > 12


@pytest.mark.parametrize("agent", [DQN, {**PPO, "block_steps": 256}], ids=["DQN", "PPO"])
def test_an_image_beside_a_number(tmp_path: Path, agent: dict[str, Any]) -> None:
    """16 is the best policy, 8 one that sees only one of the two."""
    settings = {**agent, **IMAGES, "hidden": [32], "total_steps": 5_000}
    assert reward(tmp_path, env=Camera, drop_observations="mission", **settings) > 13


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("agent", ["PPO", "A2C"])
def test_numbers_and_choices_in_one_action(tmp_path: Path, agent: str, seed: int) -> None:
    """16 is best; a policy that draws at random gets about 9.5."""
    assert reward(tmp_path, env=Valves, seed=seed, **LEARNERS[agent]) > 15
    policy = exarl.load(next(tmp_path.iterdir()))
    action = policy.act(np.ones(3, np.float32))
    assert Valves.action_space.contains(action)
    assert (action["pump"], *action["locks"][0]) == (3, 1, 1)


PARTS: dict[str, tuple[type[Keys], dict[str, Any]]] = {
    "DQN": (Doors, LEARNERS["DQN"]),
    "PPO, LSTM": (Valves, {**LEARNERS["PPO"], "model_type": "LSTM", "units": 16}),
    "TD3": (Flows, {"agent": "TD3-v0", "total_steps": 3_000, "learning_starts": 500}),
    "SAC": (Flows, {"agent": "SAC-v0", "total_steps": 3_000, "learning_starts": 500}),
}


@pytest.mark.parametrize("case", PARTS)
def test_actions_of_several_parts(tmp_path: Path, case: str) -> None:
    """16 is best."""
    kind, parameters = PARTS[case]
    assert reward(tmp_path, env=kind, **parameters) > 14
