"""Policies of all kinds in the same episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exarl
from exarl.acting.evaluation import Played
from exarl.errors import ConfigError
from exarl.run.evaluation import Spectator, compare

CONTROLLERS = """
class Balance:
    def __init__(self, env=None):
        self.env = env
        self.begun = 0
    def reset(self):
        self.begun += 1
        self.sum = 0.0
    def act(self, observation):
        self.sum += observation[2]
        return int(observation[2] + 0.3 * observation[3] + 0.01 * self.sum > 0)

def left(observation):
    return 0

started = Balance()
number = 7
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"controllers_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(CONTROLLERS)
    monkeypatch.setitem(MODULE, "name", name)


MODULE = {"name": ""}


def of(name: str) -> str:
    return f"{MODULE['name']}:{name}"


def quick(**parameters: Any) -> Path:
    words = {"agent": "A2C-v0", "total_steps": 64, "envs_per_actor": 1, "block_steps": 32}
    result = exarl.train(progress=False, **({"env": "CartPole-v1", **words} | parameters))
    assert result is not None
    return result.run_dir


def test_controllers_of_every_form() -> None:
    import importlib

    module = importlib.import_module(MODULE["name"])
    forms = (of("Balance"), of("started"), module.Balance(), module.left, of("left"))
    results = [exarl.evaluate(each, env="CartPole-v1", episodes=3, seed=1) for each in forms]
    means = [result.reward_mean for result in results if result is not None]
    assert means[0] == means[1] == means[2] > 400
    assert means[3] == means[4] < 12
    assert module.started.begun == 3


def test_the_same_episodes_for_all(tmp_path: Path) -> None:
    """``left`` never depends on what it sees: equal lengths show equal episodes."""
    run = quick()
    seen: list[tuple[int, Played]] = []
    results = compare(
        [run, of("left"), "Random-v0", of("left")],
        {"seed": 3},
        4,
        spectator=Spectator(on_episode=lambda _, number, played: seen.append((number, played))),
    )
    assert results[1].episodes == results[3].episodes
    assert [result.policy for result in results] == [str(run), of("left"), "Random-v0", of("left")]
    assert results[0].steps == 64 and results[1].steps is None
    assert [number for number, _ in seen] == [0, 1, 2, 3] * 4
    assert [played for _, played in seen[:4]] == list(results[0].episodes)
    alone = exarl.evaluate(run, episodes=4, seed=3)
    assert alone == results[0]


def test_figures_of_a_result() -> None:
    result = exarl.evaluate(of("left"), env="CartPole-v1", episodes=5, n_steps=4)
    assert result is not None
    assert result.rewards.tolist() == [4.0] * 5 and result.lengths.tolist() == [4] * 5
    assert (result.reward_mean, result.reward_std, result.env) == (4.0, 0.0, "CartPole-v1")
    assert {played.ended_by for played in result.episodes} == {"truncation"}
    assert str(result) == "reward 4.000 +- 0.000 (min 4.000, max 4.000), length 4.0, 5 episodes"


def test_parameters_of_the_environment() -> None:
    run = quick(env="Pendulum-v1", g=0.0)
    calm, fallen = exarl.evaluate(run, episodes=2), exarl.evaluate(run, episodes=2, g=30.0)
    assert calm is not None and fallen is not None
    assert not np.allclose(calm.rewards, fallen.rewards)


@pytest.mark.parametrize(
    ("policies", "given", "parts"),
    [
        (["left"], {}, "which environment?"),
        (["nix"], {"env": "CartPole-v1"}, "no attribute 'nix'"),
        (["number"], {"env": "CartPole-v1"}, "it has no act"),
    ],
)
def test_what_cannot_be_played(policies: list[str], given: dict[str, Any], parts: str) -> None:
    with pytest.raises(ConfigError, match=parts):
        compare([of(each) for each in policies], given)


def test_names_of_nothing() -> None:
    with pytest.raises(ConfigError, match="no run directory"):
        exarl.evaluate("nowhere")
    with pytest.raises(ConfigError, match="no_such_module"):
        exarl.evaluate("no_such_module:PID", env="CartPole-v1")
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        exarl.evaluate(of("left"), env="CartPole-v1", episodes=0)


def test_runs_of_different_environments_are_refused() -> None:
    first, other = quick(), quick(env="Acrobot-v1")
    with pytest.raises(ConfigError, match="different environments: CartPole-v1 and Acrobot-v1"):
        compare([first, other], {})
