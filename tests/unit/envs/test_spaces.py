"""Any Gymnasium space as the arrays of agents and blocks, and back."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from exarl.envs.spaces import MAX_COMBINATIONS, SpaceAdapter, adapt, decoder
from exarl.errors import ConfigError
from exarl.types import ArraySpec

UNIT = spaces.Box(0, 1, (2,))
TWO = spaces.Discrete(2)


def adapted(
    observation: spaces.Space[Any] = UNIT,
    action: spaces.Space[Any] = TWO,
    kind: str = "discrete",
    bins: int = 5,
) -> SpaceAdapter:
    return adapt(
        "Toy-v0",
        observation,
        action,
        action_kind=kind,
        nactions=bins,
        max_episode_steps=77,
    )


def all_actions(adapter: SpaceAdapter) -> list[Any]:
    assert adapter.spec.n_actions is not None
    return [adapter.decode(index) for index in range(adapter.spec.n_actions)]


# -- observations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (spaces.Box(-1, 1, (2, 3), np.float32), ArraySpec((2, 3), "float32")),
        (spaces.Box(-1, 1, (4,), np.float64), ArraySpec((4,), "float32")),
        (spaces.Box(0, 255, (5, 5, 3), np.uint8), ArraySpec((5, 5, 3), "uint8")),
        (spaces.Box(0, 9, (3,), np.int32), ArraySpec((3,), "float32")),
        (spaces.Box(-1, 1, (), np.float32), ArraySpec((), "float32")),
    ],
    ids=["float32", "float64", "uint8", "int32", "scalar"],
)
def test_boxes_keep_their_shape_and_values(space: spaces.Box, spec: ArraySpec) -> None:
    adapter = adapted(space)
    assert adapter.spec.observation == spec
    assert adapter.spec.max_episode_steps == 77
    space.seed(3)
    seen = space.sample()
    stored = spec.zeros(1)
    stored[0] = adapter.encode(seen)
    np.testing.assert_allclose(stored[0], seen, rtol=1e-6)


FLATTENED = {
    "discrete": (spaces.Discrete(4, start=3), 5, [0, 0, 1, 0]),
    "multi-discrete": (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
    "multi-binary": (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
    "tuple": (
        spaces.Tuple([spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(2)]),
        (np.array([1.5, -2.5]), 1),
        [1.5, -2.5, 0, 1],
    ),
    "dict": (
        spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(0, 255, (1, 2), np.uint8)}),
        {"b": 2, "a": np.array([[7, 200]], np.uint8)},
        [7, 200, 0, 0, 1],
    ),
}


@pytest.mark.parametrize("name", FLATTENED)
def test_other_spaces_are_flattened(name: str) -> None:
    space, seen, expected = FLATTENED[name]
    assert space.contains(seen)
    adapter = adapted(space)
    flat = adapter.encode(seen)
    assert adapter.spec.observation == ArraySpec((len(expected),), "float32")
    assert flat.dtype == np.float32
    np.testing.assert_array_equal(flat, expected)


def test_observations_without_a_fixed_size_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Toy-v0.*flattened"):
        adapted(spaces.Sequence(spaces.Discrete(2)))


# -- discrete actions -------------------------------------------------------------------------------


def test_discrete_actions_are_plain_integers_with_their_offset() -> None:
    for start in (0, -1, 10):
        adapter = adapted(action=spaces.Discrete(3, start=start))
        actions = all_actions(adapter)
        assert actions == [start, start + 1, start + 2]
        assert all(type(action) is int for action in actions)
        assert adapter.decode(np.int64(1)) == start + 1
        assert adapter.spec.action == ArraySpec((), "int64")


@st.composite
def multi_discrete(draw: Any) -> spaces.MultiDiscrete:
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    starts = draw(st.lists(st.integers(-3, 3), min_size=len(counts), max_size=len(counts)))
    return spaces.MultiDiscrete(counts, start=starts)


@given(multi_discrete())
@settings(max_examples=40, deadline=None)
def test_multi_discrete_actions_are_all_combinations(space: spaces.MultiDiscrete) -> None:
    actions = all_actions(adapted(action=space))
    assert all(space.contains(action) for action in actions)
    ranges = [range(s, s + n) for s, n in zip(space.start, space.nvec, strict=True)]
    assert sorted(tuple(a.tolist()) for a in actions) == sorted(itertools.product(*ranges))


def test_multi_discrete_and_binary_actions_keep_their_shape() -> None:
    for space in (spaces.MultiDiscrete([[2, 3], [1, 2]]), spaces.MultiBinary([2, 2])):
        actions = all_actions(adapted(action=space))
        assert all(space.contains(action) for action in actions)
        assert len({action.tobytes() for action in actions}) == len(actions)
    assert len(all_actions(adapted(action=spaces.MultiBinary(5)))) == 32


@pytest.mark.parametrize("bins", [2, 3, 5])
def test_a_box_is_discretised_evenly(bins: int) -> None:
    space = spaces.Box(np.float32([-2, 0.1]), np.float32([2, 0.7]))
    actions = np.array(all_actions(adapted(action=space, bins=bins)))
    assert actions.shape == (bins**2, 2)
    assert actions.dtype == np.float32
    for column, (low, high) in enumerate(zip(space.low, space.high, strict=True)):
        levels = np.unique(actions[:, column])
        np.testing.assert_allclose(levels, np.linspace(low, high, bins), rtol=1e-6)
    assert len(np.unique(actions, axis=0)) == bins**2
    assert all(space.contains(action) for action in actions)


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.integers(2, 9),
    st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=40, deadline=None)
def test_discretised_actions_are_in_the_box(low: float, span: float, bins: int, dtype: Any) -> None:
    bounds = np.array([low, low + span], dtype)
    space = spaces.Box(*bounds, (1, 2), dtype)
    assert all(space.contains(a) for a in all_actions(adapted(action=space, bins=bins)))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (6,)),
        spaces.MultiDiscrete([101, 100]),
        spaces.MultiBinary(14),
        spaces.Box(-1, 1, (1000,)),
        spaces.MultiBinary([200, 100]),
    ],
    ids=["box", "multi-discrete", "multi-binary", "huge box", "huge multi-binary"],
)
def test_too_many_combinations_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(ConfigError, match=rf"Toy-v0.*{MAX_COMBINATIONS}"):
        adapted(action=space)


def test_the_limit_on_combinations_is_itself_allowed() -> None:
    assert adapted(action=spaces.MultiDiscrete([100, 100])).spec.n_actions == MAX_COMBINATIONS


@pytest.mark.parametrize(
    "space",
    [spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(0, np.inf, (1,)), spaces.Box(-np.inf, 0, (1,))],
)
def test_unbounded_boxes_cannot_be_discretised(space: spaces.Box) -> None:
    with pytest.raises(ConfigError, match=r"Toy-v0.*unbounded"):
        adapted(action=space)


def test_action_spaces_of_other_kinds_are_refused() -> None:
    with pytest.raises(ConfigError, match="supported are Discrete"):
        adapted(action=spaces.Text(2))
    with pytest.raises(ConfigError, match="continuous actions"):
        adapted(action=spaces.Discrete(2), kind="continuous")


def test_an_environment_may_change_the_action_it_was_given() -> None:
    """Scaling an action in place is common; it must not change what the action means later."""
    for space in (spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)):
        adapter = adapted(action=space, bins=3)
        before = [np.copy(action) for action in all_actions(adapter)]
        for action in all_actions(adapter):
            action[...] = 9
        np.testing.assert_array_equal(all_actions(adapter), before)


# -- continuous actions -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_continuous_actions(dtype: Any) -> None:
    low, high = np.array([[-1, -2]], dtype), np.array([[1, 3]], dtype)
    space = spaces.Box(low, high, dtype=dtype)
    adapter = adapted(action=space, kind="continuous")
    spec = adapter.spec
    assert spec.n_actions is None
    assert spec.action == ArraySpec((1, 2), "float32")
    assert (spec.action_low, spec.action_high) == ((-1.0, -2.0), (1.0, 3.0))
    given_action = np.float32([[0.5, -0.25]])
    decoded = adapter.decode(given_action)
    assert space.contains(decoded)
    np.testing.assert_allclose(decoded, [[0.5, -0.125]])  # [-1, 1] is stretched to the box
    decoded += 1
    np.testing.assert_array_equal(given_action, np.float32([[0.5, -0.25]]))


def test_actions_beyond_the_box_are_cut_off_and_unbounded_ones_left_alone() -> None:
    space = spaces.Box(np.float32([0, -np.inf, 2]), np.float32([10, np.inf, np.inf]))
    decode = adapted(action=space, kind="continuous").decode
    np.testing.assert_allclose(decode(np.float32([1.5, 7, 1])), [10, 7, 2])
    np.testing.assert_allclose(decode(np.float32([-0.5, -7, 3])), [2.5, -7, 3])


@pytest.mark.parametrize("xp", [np, "jax"])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_actions_of_a_box_of_integers_are_rounded(dtype: Any, xp: Any) -> None:
    space = spaces.Box(0, 10, (3,), dtype)
    adapter = adapted(action=space, kind="continuous")
    assert adapter.spec.whole_actions
    assert not adapted(action=spaces.Box(0, 10, (3,)), kind="continuous").spec.whole_actions
    if xp == "jax":
        xp = pytest.importorskip("jax").numpy
    found = decoder(adapter, space, xp)(np.float32([0.99, 0.17, -0.95]))  # 9.95, 5.85, 0.25
    assert found.dtype == dtype
    assert np.asarray(found).tolist() == [10, 6, 0]
    np.testing.assert_array_equal(found, adapter.decode(np.float32([0.99, 0.17, -0.95])))


def test_a_box_of_integers_is_discretised_at_the_nearest_ones() -> None:
    space = spaces.Box(0, 10, (1,), np.int32)
    actions = all_actions(adapted(action=space, bins=4))
    assert np.ravel(actions).tolist() == [0, 3, 7, 10]


def test_any_kind_of_action_keeps_the_kind_of_the_space() -> None:
    assert adapted(action=spaces.Discrete(3), kind="any").spec.n_actions == 3
    assert adapted(action=spaces.Box(-1, 1, (2,)), kind="any").spec.n_actions is None
