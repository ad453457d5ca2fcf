"""Observations of several parts: as one vector that knows its parts, and without some of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.support.masked import Bandit
from tests.support.separable import Camera

from exarl.envs.dropped import Dropped
from exarl.envs.layout import Flattened, apart, flattener
from exarl.envs.local import register_local
from exarl.envs.masks import Masked
from exarl.envs.registration import make_env
from exarl.envs.spaces import SpaceAdapter, adapt
from exarl.errors import ConfigError
from exarl.types import EnvSpec

IMAGE = spaces.Box(0, 255, (9, 10, 3), np.uint8)
MIXED = spaces.Dict(camera=IMAGE, inner=spaces.Tuple([spaces.Discrete(2), spaces.Box(-9, 9, (2,))]))
SEEN = {"camera": np.full((9, 10, 3), 51, np.uint8), "inner": (1, np.array([3.0, -4.0], "f4"))}


THREE = spaces.Discrete(3)


def adapted(
    seen: spaces.Space[Any], acted: spaces.Space[Any] = THREE, **options: Any
) -> SpaceAdapter:
    given = {"action_kind": "discrete", "nactions": 5, "max_episode_steps": None, **options}
    return adapt("Toy-v0", seen, acted, **given)


def test_an_image_beside_numbers_is_known_and_scaled() -> None:
    adapter = adapted(MIXED)
    camera, *numbers = adapter.spec.parts
    assert (camera.kind, camera.shape, camera.place) == ("image", (9, 10, 3), slice(0, 270))
    assert [part.kind for part in numbers] == ["numbers", "numbers"]
    vector = adapter.encode(SEEN)
    np.testing.assert_allclose(vector[:270], 0.2)
    np.testing.assert_array_equal(vector[270:], [0, 1, 3, -4])


def test_images_and_a_mask_stay_bytes() -> None:
    masked = spaces.Dict(camera=IMAGE, action_mask=spaces.MultiBinary(3))
    adapter = adapted(masked, masks=True)
    assert adapter.spec.observation.dtype == "uint8"
    vector = adapter.encode({"camera": SEEN["camera"], "action_mask": [1, 0, 1]})
    np.testing.assert_array_equal(vector[:270], 51)
    np.testing.assert_array_equal(vector[270:], [1, 0, 1])
    np.testing.assert_array_equal(adapter.spec.allowed(vector[None]), [[True, False, True]])


def test_numbers_alone_have_no_parts() -> None:
    assert adapted(spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (2,)))).spec.parts == ()


@pytest.mark.parametrize("space", [MIXED, spaces.Dict(camera=IMAGE)])
def test_what_comes_flattened_from_another_process_is_the_same(space: spaces.Dict) -> None:
    flat = flattener(space)(SEEN)
    np.testing.assert_array_equal(flat, spaces.flatten(space, {n: SEEN[n] for n in space.spaces}))
    box = spaces.Box(-np.inf, np.inf, flat.shape)
    here, there = adapted(space), adapted(Flattened(box, space))
    assert here.spec == there.spec
    np.testing.assert_array_equal(here.encode(SEEN), there.encode(flat))
    assert apart(Flattened(box, space), flat)[0]["camera"].shape == (9, 10, 3)


def test_a_spec_with_parts_and_choices_survives_json() -> None:
    masked = spaces.Dict(camera=IMAGE, action_mask=spaces.MultiBinary(5))
    adapter = adapted(masked, spaces.MultiDiscrete([3, 2]), factors=True, masks=True)
    assert adapter.spec.choices == (3, 2)
    assert EnvSpec.from_json(adapter.spec.to_json()) == adapter.spec


def test_parts_that_are_no_numbers_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"mission is a Text.*--drop_observations mission"):
        adapted(Camera.observation_space)
    with pytest.raises(ConfigError, match=r"a/b is a Sequence"):
        adapted(spaces.Dict(a=spaces.Dict(b=spaces.Sequence(spaces.Discrete(2)))))


def test_masks_need_an_agent_that_respects_them() -> None:
    masked = spaces.Dict(a=spaces.Discrete(2), action_mask=spaces.MultiBinary(3))
    with pytest.raises(ConfigError, match=r"does not respect: .*drop_observations action_mask"):
        adapted(masked)


# -- leaving parts out ------------------------------------------------------------------------------


def test_parts_are_left_out_on_request() -> None:
    env = Dropped(Camera(), ["mission"])
    seen, _ = env.reset(seed=0)
    assert seen.keys() == env.observation_space.spaces.keys() == {"camera", "flip"}
    assert env.observation_space.contains(seen)


def test_parts_of_parts_are_left_out_too() -> None:
    class Nested(Camera):
        observation_space = MIXED

        def _draw(self) -> Any:
            return SEEN

        def step(self, action: Any) -> Any:
            return SEEN, 0.0, False, False, {}

    env = Dropped(Nested(), ["inner/0"])
    seen = env.step(0)[0]
    np.testing.assert_array_equal(seen["inner"]["1"], [3, -4])
    assert seen["inner"].keys() == {"1"}
    assert env.observation_space.contains(seen)


def test_a_part_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no part 'text'.*camera, flip, mission"):
        Dropped(Camera(), ["text"])


def test_the_mask_can_be_left_out() -> None:
    id = register_local(Bandit)
    assert isinstance(make_env(id, {})[0], Masked)
    assert not isinstance(make_env(id, {}, drop=["action_mask"])[0], Masked)


# -- actions of several factors -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([10] * 8, start=[2] * 8),
        spaces.MultiDiscrete([[40, 50], [3, 2]]),
        spaces.MultiBinary([3, 5]),
        spaces.Box(-2, 2, (6,), np.float32),
    ],
)
def test_factors_are_chosen_one_by_one_where_their_product_is_large(
    space: spaces.Space[Any],
) -> None:
    adapter = adapted(MIXED, space, factors=True)
    counts = np.array(adapter.spec.choices)
    assert adapter.spec.n_actions is None
    assert adapter.spec.action_size == counts.sum()
    rng = np.random.default_rng(0)
    made = [adapter.decode(rng.integers(0, counts)) for _ in range(50)]
    assert all(space.contains(action) for action in made)
    first, last = adapter.decode(0 * counts), adapter.decode(counts - 1)
    assert (np.ravel(last) > np.ravel(first)).all()


def test_small_products_are_one_choice() -> None:
    assert adapted(MIXED, spaces.MultiDiscrete([10, 10, 10]), factors=True).spec.n_actions == 1000
    assert adapted(MIXED, spaces.MultiDiscrete([10, 101]), factors=True).spec.choices == (10, 101)
