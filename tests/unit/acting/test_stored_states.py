"""What a checkpoint tells is checked before a run goes on with it."""

from __future__ import annotations

import numpy as np
import pytest

from exarl.acting.rollout import check_stored
from exarl.errors import CheckpointError
from exarl.records.checkpoint import Checkpoint, not_finite, weights_of
from exarl.training.counters import Counters, stored_counters

GOOD = {"3/number": np.array(2), "3/total_reward": np.array(1.5), "3/env/at": np.array(True)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("3/number", np.array(np.nan)),
        ("3/length", np.array([1, 2])),
        ("3/stream", np.array([], np.int64)),
        ("3/return", np.array(True)),
        ("3/total_reward", np.array(np.inf)),
    ],
)
def test_numbers_of_environments_are_of_their_kind(name: str, value: np.ndarray) -> None:
    check_stored(GOOD)
    with pytest.raises(ValueError, match=name):
        check_stored({**GOOD, name: value})


def test_counters_are_whole_numbers() -> None:
    assert stored_counters({"steps": 7}) == Counters(steps=7)
    for wrong in (7.0, True, "7", None):
        with pytest.raises(TypeError):
            stored_counters({"steps": wrong})


@pytest.mark.parametrize("weights", [np.array([True]), np.array([np.nan]), np.array([1])])
def test_weights_are_finite_numbers(weights: np.ndarray) -> None:
    good = Checkpoint({"agent": {"weights": np.zeros(3, np.float32)}}, {})
    bad = Checkpoint({"agent": {"weights": weights}}, {})
    assert not_finite(good) is None
    assert not_finite(bad) == "weights"
    assert weights_of(good) is good.arrays["agent"]["weights"]
    for damaged in (bad, Checkpoint({"agent": {}}, {}), Checkpoint({}, {})):
        with pytest.raises(CheckpointError):
            weights_of(damaged)
