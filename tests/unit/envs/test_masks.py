"""Where an environment says which actions are allowed, and the one form that this gets."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tests.support.envs import Counter
from tests.support.masked import Bandit, Closed, Pair, Showing, Telling

from exarl.envs.masks import KEY, SEEN, Masked, mask_size, own_space, with_masks
from exarl.envs.outcome import begin
from exarl.errors import ConfigError, EnvironmentFailure


@pytest.mark.parametrize("kind", [Bandit, Telling, Showing, Pair])
def test_each_convention_becomes_a_part_of_the_observation(kind: type[Bandit]) -> None:
    bare = kind()
    env = with_masks(bare)
    assert isinstance(env, Masked)
    assert env.observation_space[KEY] == spaces.MultiBinary(5)  # type: ignore[index]
    seen = env.reset(seed=1)[0]
    for _ in range(4):
        np.testing.assert_array_equal(seen[KEY], bare.mask)
        np.testing.assert_array_equal(seen[SEEN], bare.pay)
        allowed = np.flatnonzero(bare.mask)
        both = [allowed[0], allowed[-1] - 3]
        seen = env.step(both if kind is Pair else allowed[0])[0]
    assert own_space(env.observation_space) in (Bandit.observation_space, env.observation_space)


def test_other_environments_stay_as_they_are_and_are_not_reset() -> None:
    class Unready(Counter):
        def reset(self, **_: Any) -> Any:
            raise AssertionError("a reset may take minutes")

    env = Unready()
    assert with_masks(env) is env


def test_a_mask_of_continuous_actions_is_no_mask() -> None:
    class Box(Telling):
        action_space = spaces.Box(-1, 1, (5,))

    assert not isinstance(with_masks(Box()), Masked)


def test_nothing_allowed_is_a_failure_in_one_line_that_names_the_environment() -> None:
    env = with_masks(Closed())
    env.reset(seed=1)
    with pytest.raises(EnvironmentFailure, match=r"environment Closed .* allows no action"):
        for _ in range(3):
            env.step(np.flatnonzero(env.unwrapped.mask)[0])  # type: ignore[attr-defined]


def test_where_an_episode_is_over_nothing_need_be_allowed() -> None:
    env = with_masks(Telling())
    env.reset(seed=1)
    for _ in range(10):
        seen, _, terminated, _, _ = env.step(np.flatnonzero(env.unwrapped.mask)[0])  # type: ignore[attr-defined]
    assert terminated
    assert seen[KEY].all()  # type: ignore[index]


def test_masks_of_a_wrong_size_are_refused() -> None:
    class Wide(Telling):
        def action_masks(self) -> np.ndarray:
            return np.ones(7, bool)

    with pytest.raises(EnvironmentFailure, match=r"Wide .* 7 entries, not 5"):
        begin(with_masks(Wide()), 1)

    class Wrong(Showing):
        observation_space = spaces.Dict(action_mask=spaces.MultiBinary(3))

    with pytest.raises(ConfigError, match="3 entries, not 5"):
        with_masks(Wrong())


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Discrete(4, start=2), 4),
        (spaces.MultiDiscrete([3, 2]), 5),
        (spaces.MultiBinary(3), 6),
        (spaces.Box(0, 1, (3,)), None),
    ],
)
def test_a_mask_has_an_entry_for_each_choice(space: gymnasium.Space[Any], size: int | None) -> None:
    assert mask_size(space) == size
