"""The encoder of actions that were taken instead is the inverse of what an adapter decodes."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from exarl.envs.spaces import adapt
from exarl.envs.taken import encoder

SEEN = spaces.Box(0, 1, (1,))
BOX = spaces.Box(np.array([-1.0, 2.0, -np.inf], "f4"), np.array([3.0, 2.5, np.inf], "f4"))


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Discrete(5, start=-2), "discrete"),
        (spaces.MultiDiscrete([2, 3]), "discrete"),
        (spaces.MultiBinary(3), "discrete"),
        (spaces.Box(-2.0, 2.0, (2,)), "discrete"),
        (BOX, "continuous"),
        (spaces.Box(0, 9, (2,), np.int64), "continuous"),
    ],
)
def test_encoding_undoes_decoding(space: gymnasium.Space[object], kind: str) -> None:
    adapter = adapt("E", SEEN, space, action_kind=kind, nactions=5, max_episode_steps=None)
    encode = encoder(adapter, space)
    if adapter.spec.n_actions is not None:
        for index in range(adapter.spec.n_actions):
            assert encode(adapter.decode(index)) == index
        return
    for seed in range(20):
        space.seed(seed)
        action = space.sample()
        again = adapter.decode(encode(action))
        np.testing.assert_allclose(again, np.asarray(action), rtol=1e-5, atol=1e-5)


def test_a_value_between_two_bins_is_the_nearer_one() -> None:
    space = spaces.Box(-2.0, 2.0, (1,))
    adapter = adapt("E", SEEN, space, action_kind="discrete", nactions=5, max_episode_steps=None)
    assert [encoder(adapter, space)([x]) for x in (-2.0, -0.6, 0.4, 5.0)] == [0, 1, 2, 4]
