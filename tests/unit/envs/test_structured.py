"""Dict and Tuple actions: one vector for the agent, their own structure for the environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.separable import Doors, Flows, Valves

from exarl.comm.messages import GroupCall, decode
from exarl.envs.check import check_environment
from exarl.envs.group import GroupEnv
from exarl.envs.group import _action as action_in
from exarl.envs.layout import Flattened
from exarl.envs.local import register_local
from exarl.envs.masks import mask_size
from exarl.envs.spaces import SpaceAdapter, adapt, as_given, decoder
from exarl.envs.structured import JoinedActions
from exarl.envs.taken import encoder
from exarl.errors import ConfigError

SEEN = spaces.Box(0, 1, (1,))
LEAVES: list[spaces.Space[Any]] = [
    spaces.Box(-1, 3, (2,), np.float32),
    spaces.Box(-np.inf, np.inf, (1, 2), np.float64),
    spaces.Box(-3, 200, (2, 2), np.int32),
    spaces.Box(0, 255, (1,), np.uint8),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([[2, 3], [1, 5]], start=[[0, 1], [2, -3]]),
    spaces.MultiBinary([2, 1]),
]


def nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(children, min_size=1, max_size=3)
    named = some.map(lambda parts: spaces.Dict({f"p{i}": p for i, p in enumerate(parts)}))
    return named | some.map(spaces.Tuple)


COMPOUND = nested(st.recursive(st.sampled_from(LEAVES), nested, max_leaves=5))


def adapted(space: spaces.Space[Any], kind: str = "any", mixed: bool = True) -> SpaceAdapter:
    return adapt(
        "E",
        SEEN,
        space,
        action_kind=kind,
        nactions=3,
        max_episode_steps=None,
        factors=True,
        mixed=mixed,
    )


def same(space: spaces.Space[Any], one: Any, other: Any) -> bool:
    return np.allclose(spaces.flatten(space, one), spaces.flatten(space, other), 1e-5, 1e-5)


@settings(max_examples=50, deadline=None)
@given(COMPOUND, st.integers(0, 99))
def test_apart_undoes_together(space: spaces.Space[Any], seed: int) -> None:
    space.seed(seed)
    joined, action = JoinedActions.of(space), space.sample()
    assert joined is not None
    vector = joined.together(action)
    assert joined.box.contains(vector)
    again = joined.apart()(vector)
    assert space.contains(again)
    assert same(space, again, action)


@settings(max_examples=50, deadline=None)
@given(COMPOUND, st.integers(0, 99))
def test_what_an_agent_gives_is_in_the_space_and_encoding_undoes_decoding(
    space: spaces.Space[Any], seed: int
) -> None:
    adapter, rng = adapted(space), np.random.default_rng(seed)
    spec = adapter.spec
    if spec.n_actions is not None:
        given: Any = int(rng.integers(spec.n_actions))
    else:
        numbers = rng.normal(0, 3, spec.numbers).astype("f4")
        given = np.concatenate([numbers, rng.integers(spec.choices)]).astype(spec.action.dtype)
    action = adapter.decode(given)
    assert space.contains(action)
    encoded = encoder(adapter, space)(action)
    assert np.asarray(encoded).dtype == spec.action.dtype
    assert same(space, adapter.decode(encoded), action)


def test_numbers_come_first_and_are_stretched_to_their_bounds() -> None:
    adapter = adapted(Valves.action_space)
    assert adapter.spec.numbers == 3
    assert adapter.spec.choices == (3, 2, 2)
    assert (adapter.spec.mixed, adapter.spec.discrete, adapter.spec.action_size) == (
        True,
        False,
        10,
    )
    action = adapter.decode(np.array([0, 0.5, 2, 2, 1, 0], np.float32))
    np.testing.assert_allclose(action["flow"], [0, 7.5])
    np.testing.assert_array_equal(action["locks"][0], [1, 0])
    assert (action["pump"], action["locks"][1]) == (3, 8)


def test_what_is_only_numbers_or_only_choices_is_as_without_parts() -> None:
    assert adapted(Doors.action_space).spec.n_actions == 12
    flows = adapted(Flows.action_space).spec
    assert flows.action.shape == (3,)
    assert flows.action_low == (-2, -2, 0)
    assert adapted(Flows.action_space, "discrete").spec.choices == ()
    wide = spaces.Dict(a=spaces.MultiBinary(20), b=spaces.Discrete(7))
    assert adapted(wide).spec.choices == (2,) * 20 + (7,)


@pytest.mark.parametrize("kind", ["discrete", "continuous", "any"])
def test_mixed_ones_are_refused_with_agents_that_take_them(kind: str) -> None:
    with pytest.raises(ConfigError, match="PPO-v0 and A2C-v0"):
        adapted(Valves.action_space, kind, mixed=False)


def test_parts_that_are_no_numbers_are_named() -> None:
    space = spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), spaces.Text(3)]))
    with pytest.raises(ConfigError, match="part a/1 is a Text"):
        adapted(space)


@pytest.mark.parametrize("kind", [Valves, Doors])
def test_a_compiled_program_decodes_alike(kind: type[Valves]) -> None:
    from jax import jit
    from jax import numpy as jnp

    adapter = adapted(kind.action_space)
    spec, decode = adapter.spec, decoder(adapter, kind.action_space, jnp)
    for row in np.random.default_rng(0).uniform(-1.5, 1.5, (5, *spec.action.shape)):
        given: Any = 7
        if spec.n_actions is None:
            given = np.concatenate([row[: spec.numbers], [1] * len(spec.choices)], dtype="f4")
        assert same(kind.action_space, jit(decode)(given), adapter.decode(given))


def test_where_actions_travel_the_environment_gets_their_vector() -> None:
    joined = JoinedActions.of(Valves.action_space)
    assert joined is not None
    far = adapted(Flattened(joined.box, Valves.action_space))
    near = adapted(Valves.action_space)
    assert far.spec == near.spec
    given = np.array([0.3, -2, 1, 1, 0, 2], np.float32)
    vector = far.decode(given)
    assert same(Valves.action_space, joined.apart()(vector), near.decode(given))
    controller = as_given("E", SEEN, Flattened(joined.box, Valves.action_space))
    np.testing.assert_allclose(controller.decode(near.decode(given)), np.rint(vector), atol=1)


def test_the_members_of_a_group_get_the_same_action() -> None:
    sent: list[bytes] = []

    class Recorder:
        size = 2

        def send(self, message: Any, *_: Any) -> None:
            sent.append(decode(np.frombuffer(message, np.uint8), GroupCall)[1])

    env = Valves()
    group = GroupEnv(env, Recorder(), 0)  # type: ignore[arg-type]
    group.reset(seed=1)
    action = env.action_space.sample()
    group.step(action)
    again = action_in(env.action_space, sent[-1])  # type: ignore[arg-type]
    assert env.action_space.contains(again)
    assert same(env.action_space, again, action)


def test_a_mask_is_of_the_parts_that_are_chosen() -> None:
    assert mask_size(Valves.action_space) == 7
    assert mask_size(Flows.action_space) is None


def test_the_check_of_an_environment_knows_agents_for_it() -> None:
    found = {each.check: each for each in check_environment(register_local(Valves), {}, steps=20)}
    assert "PPO, A2C and A3C see" in found["spaces"].detail
    assert [name for name, each in found.items() if each.passed is False] == []
