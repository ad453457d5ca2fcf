"""An environment under a controller: what its actions mean, what is told, stored and replayed."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from support.envs import Identity
from support.learning import adapter_of

from exarl.envs.base import can_snapshot
from exarl.envs.episode import Episode
from exarl.envs.residual import Residual
from exarl.envs.taken import TAKEN
from exarl.errors import ConfigError
from exarl.types import Arrays


class Line(gymnasium.Env[Any, Any]):
    """Remembers the actions it was given; its bounds are not around 0."""

    observation_space = spaces.Box(-9, 9, (1,))
    action_space = spaces.Box(np.array([0.0, -1.0]), np.array([10.0, 3.0]), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.given: list[list[float]] = []
        self.at = float(self.np_random.normal())
        return np.array([self.at], np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.given.append(action.tolist())
        self.at += 0.1 * float(action[0] - 5)
        info = {TAKEN: np.array([5.0, 0.0])} if len(self.given) == 3 else {}
        return np.array([self.at], np.float32), -abs(self.at), False, False, info


class Kept(Line):
    def get_state(self) -> Arrays:
        return {"at": np.array(self.at)}

    def set_state(self, state: Arrays) -> None:
        self.at = float(state["at"])


class Integral:
    """A controller with a memory of the episode."""

    def __init__(self) -> None:
        self.sum = 99.0

    def reset(self) -> None:
        self.sum = 0.0

    def act(self, observation: Any) -> list[float]:
        self.sum += float(observation[0])
        return [5 - 2 * float(observation[0]) - 0.1 * self.sum, 1.0]


class Storable(Integral):
    def get_state(self) -> Arrays:
        return {"sum": np.array(self.sum)}

    def set_state(self, state: Arrays) -> None:
        self.sum = float(state["sum"])


def middle(observation: Any) -> np.ndarray:
    return np.array([5.0, 1.0])


def test_the_action_is_the_controllers_and_a_part_of_the_range() -> None:
    env = Residual(Line(), middle, 0.5, observes=False)
    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)
    env.reset(seed=0)
    for chosen in ([0.0, 0.0], [1.0, -1.0], [0.2, 0.5]):
        env.step(np.array(chosen, np.float32))
    inner: Any = env.env
    expected = [[5, 1], [5 + 0.5 * 5, 1 - 0.5 * 2], [5 + 0.1 * 5, 1 + 0.25 * 2]]
    np.testing.assert_allclose(inner.given, expected, rtol=1e-6)
    whole = Residual(Line(), lambda seen: [9.9, -0.9], 0.5, observes=False)
    whole.reset(seed=0)
    whole.step(np.array([1.0, -1.0], np.float32))
    np.testing.assert_allclose(whole.env.given, [[10, -1]])  # type: ignore[attr-defined]


def test_an_action_that_was_taken_instead_is_told_as_a_correction() -> None:
    env = Residual(Line(), middle, 0.5, observes=False)
    env.reset(seed=0)
    info: Any = {}
    for _ in range(3):
        *_, info = env.step(np.zeros(2, np.float32))
    np.testing.assert_allclose(info[TAKEN], [0, -1 / (0.5 * 2)])


def test_the_policy_may_see_what_the_controller_does() -> None:
    env = Residual(Line(), middle, 0.5, observes=True)
    assert env.observation_space.shape == (3,)
    seen, _ = env.reset(seed=0)
    assert seen[0] == np.float32(env.env.at)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(seen[1:], [0, 0])  # the middle of the ranges
    assert env.observation_space.contains(seen)


def test_a_controller_is_reset_and_each_environment_has_its_own() -> None:
    shared = Integral()
    one, other = (Residual(Line(), shared, 0.1, observes=False) for _ in range(2))
    for env in (one, other, one):
        seen, _ = env.reset(seed=1)
        env.step(np.zeros(2, np.float32))
        first = env.env.given[0][0]  # type: ignore[attr-defined]
        assert first == pytest.approx(np.clip(5 - 2.1 * float(seen[0]), 0, 10), rel=1e-5)
    assert shared.sum == 99


def actions(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(5).uniform(-1, 1, (count, 2)).astype(np.float32))


@pytest.mark.parametrize(
    ("inner", "source", "snapshots"),
    [
        (Kept, Storable, True),
        (Kept, Integral, False),
        (Line, Storable, False),
        (Kept, middle, True),
    ],
)
def test_a_running_episode_is_restored_with_its_controller(
    inner: type[Line], source: Any, snapshots: bool
) -> None:
    def episode() -> Episode:
        env = Residual(inner(), source, 0.4, observes=True)
        return Episode(env, adapter_of(env, "continuous"), None, 3, 0)

    first, again = episode(), episode()
    first.begin()
    assert can_snapshot(first.env) is snapshots
    for action in actions(4):
        first.step(action)
    again.restore(first.state())
    np.testing.assert_array_equal(again.observation, first.observation)
    for action in actions(3):
        np.testing.assert_array_equal(again.step(action)[0], first.step(action)[0])
    assert again.env.env.given[-3:] == first.env.env.given[-3:]  # type: ignore[attr-defined]


def test_what_cannot_be_corrected_is_refused() -> None:
    with pytest.raises(ConfigError, match="continuous actions"):
        Residual(Identity(), middle, 0.1, observes=False)
    with pytest.raises(ConfigError, match="no act"):
        Residual(Line(), 7, 0.1, observes=False)
    env = Residual(Line(), lambda seen: [1.0], 0.1, observes=False)
    with pytest.raises(ValueError, match=r"no action \[2\]"):
        env.reset(seed=0)
