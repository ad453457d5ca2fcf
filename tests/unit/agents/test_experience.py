"""Batches that are too many for memory at once are fetched in parts, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.learning import assert_same_arrays, continuous_spec, make_agent, random_block

from exarl.agents import experience

SPEC = continuous_spec((3,), 2)


@pytest.mark.parametrize("priority_scale", [0.0, 0.6])
def test_updates_in_parts_are_the_same(
    priority_scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[str, Any] = {"id": "TD3-v0", "learner": True, "batch_size": 8, "learning_starts": 0}
    words |= {"updates_per_step": 0.5, "priority_scale": priority_scale}
    whole, parts = (make_agent(SPEC, **words) for _ in range(2))
    fetched: list[int] = []
    fetch = parts.experience._fetched

    def count(drawn: Any) -> Any:
        fetched.append(len(drawn["places"]))
        return fetch(drawn)

    monkeypatch.setattr(parts.experience, "_fetched", count)
    for seed in range(3):
        block = random_block(SPEC, seed)
        one = whole.train(block)
        with monkeypatch.context() as patch:
            row = (3 + 3 + 2 + 1 + 1) * 4
            patch.setattr(experience, "BATCHES_BYTES", 3 * 8 * row)  # of three updates
            other = parts.train(block)
        assert one.keys() == other.keys()
        assert one["updates"] == other["updates"]
        assert np.isfinite(list(other.values())).all()
    assert fetched == [3, 3, 2] * 3
    np.testing.assert_array_equal(whole.get_weights(), parts.get_weights())
    assert_same_arrays(whole.state()[0], parts.state()[0])
