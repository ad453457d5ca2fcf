"""What bounds a run, in words."""

from __future__ import annotations

from exarl.runs.clock import bottleneck


def test_restarts_are_named_when_they_take_the_time() -> None:
    actors = {"env": 0.3, "inference": 0.1, "restart": 0.6}
    assert "fail" in bottleneck({"wait": 0.9}, actors)
    assert "60%" in bottleneck({"env": 0.3, "learn": 0.1}, actors)
    assert "fail" not in bottleneck({"wait": 0.9}, {**actors, "restart": 0.1})
