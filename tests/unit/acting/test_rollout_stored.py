"""What a checkpoint tells of environments is checked before a run goes on with it."""

from __future__ import annotations

import numpy as np
import pytest

from exarl.acting.rollout import check_stored

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
