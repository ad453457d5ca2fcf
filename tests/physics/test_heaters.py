"""The rod of examples/multi_agent, against what the heat equation says."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import exarl


@pytest.fixture(scope="module")
def heaters() -> Iterator[Any]:
    path = Path(__file__).parents[2] / "examples" / "multi_agent" / "heaters.py"
    gymnasium.registry.pop("Heaters-v0", None)  # of a test of the page that shows it
    yield runpy.run_path(str(path))
    gymnasium.registry.pop("Heaters-v0", None)


@pytest.mark.parametrize("seed", range(3))
def test_heat_comes_from_the_heaters_and_goes_by_the_loss_alone(heaters: Any, seed: int) -> None:
    rod, rng = heaters["Heaters"](), np.random.default_rng(seed)
    rod.reset(seed=seed)
    for _ in range(10):
        before = rod._heat.mean()
        rod.step({agent: rng.uniform(-1, 1, 1) for agent in rod.possible_agents})
        change = rod._power.mean() - heaters["LOSS"] * rod._heat.mean()
        assert rod._heat.mean() - before == pytest.approx(heaters["TIME_STEP"] * change)


def test_equal_power_gives_the_known_level_and_heat_spreads_evenly(heaters: Any) -> None:
    rod = heaters["Heaters"]()
    rod.reset(seed=0)
    for _ in range(400):
        rod.step({agent: [0.0] for agent in rod.possible_agents})
    assert rod._heat.mean() == pytest.approx(0.5 * heaters["MOST_POWER"] / heaters["LOSS"])
    np.testing.assert_allclose(rod._heat, rod._heat[::-1])


def test_local_control_clearly_beats_constant_power(heaters: Any) -> None:
    returns = [
        exarl.evaluate(heaters[name](), env="Heaters-v0", episodes=5).reward_mean  # type: ignore[union-attr]
        for name in ("Proportional", "Constant")
    ]
    assert returns[0] > returns[1] / 2
