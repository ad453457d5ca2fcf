"""What a row of metrics sums up: means since the last row, lags, and quartiles of recent returns."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from exarl.training.metrics_rows import RewardWindow, SinceRow


def test_metrics_are_means_and_counted_once() -> None:
    seen: list[Mapping[str, float]] = []
    since = SinceRow(seen.append)
    since.add({"loss": 1.0, "q": 10}, [2], learnt=True)
    assert not seen, "the newest may still be on a device"
    since.add({"loss": 3.0}, [0, 4], learnt=False)
    assert seen == [{"loss": 1.0, "q": 10.0}]
    expected = {"policy_lag_mean": 2.0, "policy_lag_max": 4, "loss": 2.0, "q": 10.0}
    assert since.columns() == expected
    assert since.columns() == expected, "asked again, nothing is added again"
    assert len(seen) == 1, "only blocks with updates are looked at"


def test_the_sums_for_a_checkpoint_contain_the_newest_block() -> None:
    since = SinceRow(lambda _: None)
    since.add({"loss": 1.0}, [2], learnt=True)
    since.add({"loss": 4.0, "q": 6}, [0, 1], learnt=True)
    state = since.state()
    assert state == [{"loss": [5.0, 2], "q": [6.0, 1]}, [3, 3, 2]]
    resumed = SinceRow(lambda _: None)
    resumed.restore(state)
    for sums in (since, resumed):
        sums.add({"loss": 4.0}, [3], learnt=True)
        assert sums.columns() == {
            "policy_lag_mean": 1.5, "policy_lag_max": 3, "loss": 3.0, "q": 6.0,
        }  # fmt: skip
    assert state[0]["loss"] == [5.0, 2], "what was kept does not change"


def test_without_blocks_there_is_no_lag() -> None:
    since = SinceRow(lambda _: None)
    assert since.columns() == {"policy_lag_mean": 0.0, "policy_lag_max": 0}
    since.add({}, [], learnt=False)
    since.add({}, [3], learnt=False)
    assert since.columns() == {"policy_lag_mean": 3.0, "policy_lag_max": 3}


@pytest.mark.parametrize(
    ("returns", "q25", "q75"),
    [
        ([5.0], 5, 5),
        ([4.0, 1.0, 3.0, 2.0, 5.0], 2, 4),
        (list(range(100, -1, -1)), 25, 75),
        (list(range(4001)), 1000, 3000),
    ],
)
def test_quartiles_of_the_last_returns(returns: list[float], q25: float, q75: float) -> None:
    window = RewardWindow(5000)
    window.returns.extend(returns)
    found = window.quartiles()
    assert found["episode_reward_q25"] == pytest.approx(q25, abs=len(returns) / 900)
    assert found["episode_reward_q75"] == pytest.approx(q75, abs=len(returns) / 900)


def test_an_empty_window_has_no_quartiles_and_a_full_one_says_so() -> None:
    window = RewardWindow(2)
    assert all(math.isnan(value) for value in window.quartiles().values())
    for number, full in ((1.0, False), (2.0, True), (3.0, True)):
        window.returns.append(number)
        assert window.full is full
    assert list(window.returns) == [2.0, 3.0]
