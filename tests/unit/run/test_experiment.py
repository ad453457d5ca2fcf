"""Runs from Python: environments as objects, callbacks, and what a result holds."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import exarl
from exarl.errors import ConfigError


class Ramp(gymnasium.Env[Any, Any]):
    """Each step is worth ``slope``; ten steps."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, slope: float = 1.0) -> None:
        self.slope, self.closed = slope, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.full(1, self.t, np.float32), self.slope, self.t == 10, False, {}

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def train(**parameters: Any) -> exarl.RunResult:
    words = {"agent": "Random-v0", "total_steps": 100, "block_steps": 20, "progress": False}
    result = exarl.train(**(words | parameters))
    assert result is not None
    return result


def test_a_class_takes_parameters() -> None:
    assert train(env=Ramp, slope=2.5).summary["last_reward_mean"] == 25
    with pytest.raises(ConfigError, match="unknown parameter 'slop'"):
        train(env=Ramp, slop=2)


def test_a_function_makes_as_many_as_are_needed() -> None:
    result = train(env=lambda: Ramp(3.0), envs_per_actor=4, eval_interval=40, eval_episodes=1)
    assert result.summary["last_reward_mean"] == result.summary["last_evaluation"] == 30


def test_an_environment_is_lent() -> None:
    own = Ramp(4.0)
    for _ in range(2):
        assert train(env=own).summary["last_reward_mean"] == 40
        assert not own.closed
    with pytest.raises(ConfigError, match="give a function that makes environments"):
        train(env=own, envs_per_actor=2)


def test_what_is_no_environment() -> None:
    with pytest.raises(ConfigError, match="env is an id, an environment or a function"):
        train(env=7)


def test_a_run_is_continued_with_its_environment() -> None:
    run = train(env=Ramp(2.0), run_dir="run").run_dir
    result = exarl.resume(run, env=lambda: Ramp(2.0), total_steps=200, progress=False)
    assert result is not None
    assert (result.reason, result.summary["timesteps_total"]) == ("total_steps", 200)
    with pytest.raises(ConfigError, match="gamma"):
        exarl.resume(run, gamma=0.5, progress=False)


def test_callbacks() -> None:
    blocks: list[Any] = []
    episodes: list[Any] = []
    evaluations: list[Any] = []
    train(
        env=Ramp,
        on_block=blocks.append,
        on_episode=episodes.append,
        on_evaluation=evaluations.append,
        eval_interval=50,
        eval_episodes=2,
    )
    assert [b.steps for b in blocks] == [20, 40, 60, 80, 100]
    assert [b.iteration for b in blocks] == [1, 2, 3, 4, 5]
    assert [b.episodes for b in blocks] == [2, 4, 6, 8, 10]
    assert blocks[-1].reward_mean == 10
    assert [(e.reward, e.length, e.steps) for e in episodes[:3]] == [
        (10, 10, 20),
        (10, 10, 20),
        (10, 10, 40),
    ]
    assert evaluations[-1].rewards == [10, 10] and evaluations[-1].steps == 100


def test_stop() -> None:
    result = train(env=Ramp, total_steps=1000, stop=lambda progress: progress.episodes >= 5)
    assert (result.reason, result.summary["timesteps_total"]) == ("callback", 60)
    assert (result.run_dir / "checkpoints" / "000000000060").is_dir()


def test_what_a_callback_raises_ends_the_run() -> None:
    def broken(progress: Any) -> None:
        raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine"):
        train(env=Ramp, on_block=broken, run_dir="broken")


def test_a_notebook_shows_summary_and_curve() -> None:
    result = train(env=Ramp, run_dir="<mine>")
    page = result._repr_html_()
    picture = page.partition("data:image/png;base64,")[2].partition('"')[0]
    assert base64.b64decode(picture) == (result.run_dir / "learning_curve.png").read_bytes()
    assert "total_steps" in page and "10.00" in page and "&lt;mine&gt;" in page
    (result.run_dir / "learning_curve.png").unlink()
    assert "<img" not in result._repr_html_()


def test_curve_and_evaluations() -> None:
    result = train(env=Ramp, eval_interval=50, eval_episodes=2)
    assert result.curve["timesteps_total"].tolist() == [20, 40, 60, 80, 100]
    assert result.curve["episode_reward_mean"].tolist() == [10] * 5
    assert result.evaluations["reward_mean"].tolist() == [10] * len(
        result.evaluations["reward_mean"]
    )
    assert train(env=Ramp).evaluations == {}
