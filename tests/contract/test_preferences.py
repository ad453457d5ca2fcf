"""Preferences among several rewards: drawn for each episode, seen by the policy, fixed on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import support.telling
from gymnasium import spaces
from support.jobs import PYTHON, assert_same, everything_of, run, under_mpi

import exarl
from exarl import ExaLearner
from exarl.cli.main import main
from exarl.envs.weighted import Weighted
from exarl.errors import ConfigError
from exarl.records.metrics import read_rows
from exarl.run import play

FRONT: dict[str, Any] = {"env": "support.telling:Front-v0", "preferences": True, "hidden": [8]}
SETTINGS: dict[str, Any] = {
    "agent": "PPO-v0",
    "learning_rate_fraction": 0,
    "block_steps": 7,
    "envs_per_actor": 2,
    "total_steps": 140,
    "log_info": ["reward"],
    "epochs": 1,
    "minibatches": 2,
}


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "draw_curve", lambda *_: None)


def train(run_dir: Path, **others: Any) -> None:
    given = {**FRONT, **SETTINGS, **others}
    given = {name: value for name, value in given.items() if value is not None}
    ExaLearner(argv=[], serial=True, progress=False, run_dir=str(run_dir), **given).run()


def rows_of(run_dir: Path) -> list[dict[str, float]]:
    """What was earned and learned, without what a clock says."""
    names = ("episode_reward_mean", "info/reward.0_mean", "info/reward.1_last", "loss")
    return [{name: row[name] for name in names} for row in read_rows(run_dir / "result.jsonl")]


class Parted(support.telling.Front):
    """Its observations have parts."""

    observation_space = spaces.Dict(t=spaces.Box(-1, 1, (1,), np.float32))

    def reset(self, **words: Any) -> Any:
        return {"t": super().reset(**words)[0]}, {}

    def step(self, action: Any) -> Any:
        seen, *rest = super().step(action)
        return {"t": seen}, *rest


def test_each_episode_has_its_own_weights_that_follow_from_its_seed() -> None:
    env, again = (Weighted(support.telling.Front(), (), preferences=True) for _ in range(2))
    drawn = []
    for seed in (*range(200), None, None):
        seen, _ = env.reset(seed=seed)
        assert env.observation_space.contains(seen)
        _, reward, *_, info = env.step(np.ones(1))
        drawn.append(seen["preference"])
        assert reward == pytest.approx(info["reward"] @ drawn[-1]) == pytest.approx(drawn[-1][0])
        if seed is not None:
            np.testing.assert_array_equal(again.reset(seed=seed)[0]["preference"], drawn[-1])
    np.testing.assert_allclose(np.sum(drawn, 1), 1, rtol=1e-6)
    assert len(np.unique(np.array(drawn)[:, 0])) == len(drawn)
    np.testing.assert_allclose(
        np.quantile(np.array(drawn)[:, 0], [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.1
    )


def test_given_weights_are_those_of_every_episode_and_a_part_beside_the_others() -> None:
    env = Weighted(Parted(), [0.25, 0.75], preferences=True)
    assert [*env.observation_space.spaces] == ["t", "preference"]
    for seed in (1, 2):
        assert env.reset(seed=seed)[0]["preference"].tolist() == [0.25, 0.75]
    assert env.step(-np.ones(1))[1] == 0.75


@pytest.mark.parametrize("weights", [[1.0, 1.0], [1.5, -0.5]])
def test_weights_that_are_no_preference_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="not negative, and their sum is 1") as refused:
        Weighted(support.telling.Front(), weights, preferences=True)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"env": "CartPole-v1"}, "preferences: its reward is one number"),
        ({"weights": [1, 2, 3]}, r"weights are 3, but its rewards \(2,\)"),
        (
            {"workflow": "fused", "env": "support.telling:TwoFold-v0", "log_info": None},
            "preferences cannot be used in workflow 'fused'",
        ),
    ],
)
def test_what_cannot_have_preferences_is_refused_in_one_line(
    words: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        train(tmp_path / "run", **words)
    assert "\n" not in str(refused.value) and not (tmp_path / "run").exists()


def test_a_part_of_that_name_is_refused() -> None:
    class Full(Parted):
        observation_space = spaces.Dict(preference=spaces.Box(0, 1, (2,)))

    with pytest.raises(ConfigError, match="a part 'preference' already"):
        Weighted(Full(), (), preferences=True)


@pytest.mark.slow
def test_a_stopped_run_continues_with_the_weights_of_its_episodes(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, checkpoint_interval=1e6)
    for steps in (70, 140):  # within episodes
        train(parts, total_steps=steps, checkpoint_interval=1e6)
    assert_same(everything_of(parts), everything_of(whole))


def test_they_are_the_same_in_an_isolated_environment(tmp_path: Path) -> None:
    train(tmp_path / "inline")
    train(tmp_path / "apart", env_isolation="process")
    assert rows_of(tmp_path / "apart") == rows_of(tmp_path / "inline")


def test_an_evaluation_draws_them_or_is_given_one(tmp_path: Path, capfd: Any) -> None:
    run_dir = tmp_path / "run"
    train(run_dir, eval_interval=70, eval_episodes=2)
    one, two = (exarl.evaluate(run_dir, episodes=3) for _ in range(2))
    assert one is not None and two is not None
    assert one.rewards.tolist() == two.rewards.tolist() and len(set(one.rewards)) == 3
    fixed = exarl.evaluate(run_dir, episodes=3, weights=[0, 1], log_info=["reward"])
    assert fixed is not None and len(set(fixed.rewards)) == 1
    assert fixed.reward_mean == pytest.approx(4 * fixed.info["info/reward.1_mean"])
    assert main(["evaluate", str(run_dir), "--weights", "0,1", "--episodes", "3"]) == 0
    assert f"reward {fixed.reward_mean:.3f}" in capfd.readouterr().out
    policy = exarl.load(run_dir)
    seen = {"observation": np.zeros(1, np.float32), "preference": np.array([0, 1], np.float32)}
    assert gymnasium.spaces.Box(-1, 1, (1,)).contains(policy.act(seen))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        *("--workflow async", "--workflow rma", "--workflow seed --env_isolation process"),
        "--workflow rma --learner_procs 2",
        "--workflow sync --process_per_env 2",
    ],
)
def test_they_are_drawn_on_other_ranks(words: str, tmp_path: Path) -> None:
    given = {**FRONT, **SETTINGS, "log_info": "reward", "hidden": "8", "total_steps": 560}
    command = [PYTHON, "-m", "exarl", "train", *(f"--{k}={v}" for k, v in given.items())]
    command += [f"--run_dir={tmp_path / 'run'}", *words.split()]
    environ = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    run(under_mpi(4 if "learner" in words else 3, command), environ=environ).ok()
    row = read_rows(tmp_path / "run" / "result.jsonl")[-1]
    assert 1 < row["episode_reward_mean"] < 4
    assert row["episode_reward_max"] - row["episode_reward_min"] > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_policy_learns_the_whole_front(seed: int, tmp_path: Path) -> None:
    """For weights (w, 1 - w) the best is to be at 2 w - 1, between the best for either reward."""
    settings = {"block_steps": 256, "envs_per_actor": 4, "total_steps": 40_000, "hidden": [32]}
    train(tmp_path / "run", **settings, epochs=10, minibatches=8, gamma=0.9, seed=seed)
    policy, shares = exarl.load(tmp_path / "run"), np.linspace(0, 1, 5)
    seen = [
        {"observation": np.zeros(1, np.float32), "preference": np.array([w, 1 - w], np.float32)}
        for w in shares
    ]
    places = np.clip(policy.act(seen), -1, 1)[:, 0]
    assert (np.diff(places) > 0.1).all(), "it moves along the front"
    np.testing.assert_allclose(places, 2 * shares - 1, atol=0.35)
