"""The learner compiles once and has the device; actors stay off it."""

from __future__ import annotations

from typing import Any

import pytest


def test_an_asynchronous_learner_compiles_only_at_its_first_updates(
    run_body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With evaluations and checkpoints on the way."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    learner, actor = run_body("compilations", 2)
    updating = [compiled for updates, compiled in learner["counts"] if updates]
    assert len(updating) > 10
    assert updating[0] > 0, "the listener heard nothing"
    assert updating == [updating[0]] * len(updating)
    assert learner["platforms"] is None
    assert not actor["jax"]
    assert actor["platforms"] == "cpu"
