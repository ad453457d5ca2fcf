"""Every agent with every kind of space and network it can learn with; what it cannot is refused."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import assert_same, everything_of, newest
from support.matrix import CASES, parameters

from exarl import ExaLearner
from exarl.acting.env_batch import EnvBatch
from exarl.errors import ConfigError
from exarl.run import play


def train(**overrides: Any) -> Any:
    return ExaLearner(argv=[], serial=True, progress=False, **overrides).run()


def signal_at(count: int, patch: pytest.MonkeyPatch) -> None:
    """SIGTERM during this step of the environments."""
    steps, step = itertools.count(1), EnvBatch.step

    def stepped(envs: EnvBatch, *arguments: Any) -> Any:
        if next(steps) == count:
            signal.raise_signal(signal.SIGTERM)
        return step(envs, *arguments)

    patch.setattr(EnvBatch, "step", stepped)


REPEATED = (
    *("DQN, discrete", "A2C, discrete", "PPO, LSTM", "SAC, discrete", "PPO, box", "TQC", "MBPO"),
    *("SAC, ensemble", "XQC"),
)
"""What they are made of, others have too: DQN prioritised, A2C in a box, A3C and DQN with an LSTM; or
they take long to compile."""


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the curve takes as long as the training."""
    monkeypatch.setattr(play, "draw_curve", lambda *_: None)


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=pytest.mark.slow if c in REPEATED else ()) for c in CASES],
)
def test_a_stopped_run_continues_as_if_nothing_had_happened(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops after a block first, then in the middle of one."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(**parameters(case, run_dir=str(whole)))
    train(**parameters(case, run_dir=str(parts), total_steps=100))
    with monkeypatch.context() as patch:
        signal_at(5, patch)
        stopped = train(**parameters(case, run_dir=str(parts), checkpoint_interval=1e6))
    assert stopped.reason == "SIGTERM"
    assert [name for name in newest(parts).arrays["envs"] if "/begun/" in name]
    train(**parameters(case, run_dir=str(parts), checkpoint_interval=1e6))
    assert_same(everything_of(parts), everything_of(whole))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"agent": "DDPG-v0"}, "continuous"),
        ({"agent": "TD3-v0"}, "continuous"),
        ({"agent": "TD3-v0", "env": "Pendulum-v1", "model_type": "LSTM"}, "memory"),
        ({"agent": "SAC-v0", "model_type": "LSTM"}, "memory"),
        ({"agent": "PPO-v0", "workflow": "async", "vtrace": False}, "vtrace"),
        ({"agent": "PPO-v0", "minibatches": 1000}, "minibatches"),
        ({"agent": "PPO-v0", "model_type": "CNN"}, "images"),
        ({"agent": "DQN-v0", "model_type": "LSTM", "data_generation": "actor"}, "data_generation"),
    ],
)
def test_what_cannot_learn_is_refused_in_one_line(
    words: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        train(**{"total_steps": 100, "run_dir": str(tmp_path / "run"), **words})
    assert "\n" not in str(refused.value)


def test_stacked_frames_are_the_last_observations(tmp_path: Path) -> None:
    from exarl.envs.episode import Episode
    from exarl.run.build import build_episode
    from exarl.run.configure import configure

    def episode(frames: int) -> Episode:
        chosen = {"env": "CartPole-v1", "frame_stack": frames}
        env, adapter, limit = build_episode(configure(overrides=chosen))
        return Episode(env, adapter, limit, seed=1, env_id=0)

    plain, stacked = episode(1), episode(3)
    seen = [plain.begin()]
    np.testing.assert_array_equal(stacked.begin(), [seen[0]] * 3)
    for action in (0, 1, 1, 0):
        seen.append(plain.step(action)[0])
        found = stacked.step(action)[0]
    np.testing.assert_array_equal(found, seen[-3:])
    again = episode(3)
    again.restore(stacked.state())
    np.testing.assert_array_equal(again.step(1)[0], stacked.step(1)[0])
