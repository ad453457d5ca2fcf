"""Learning an environment from recorded episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from support.surrogates import Episode, oscillator, untrained

from exarl.envs.space_json import space_to_json
from exarl.errors import ConfigError
from exarl.run.surrogate import (
    Fitting,
    HorizonErrors,
    errors_by_horizon,
    learn,
    limit_of,
    transitions,
)

QUICK = Fitting(members=3, elites=2, hidden=(32,), updates=600, batch_size=64, learning_rate=3e-3)
SEEN = space_to_json(spaces.Box(-np.inf, np.inf, (2,), np.float32))
ACTED = space_to_json(spaces.Box(-1.0, 1.0, (1,), np.float32))


def test_an_oscillator_is_learned_and_its_error_grows_with_the_horizon() -> None:
    """An oscillation A cos(t) differs from its start by 2 A sin(t / 2): a ratio of 20 between 30 steps
    of 0.1 and one."""
    made, errors = learn(oscillator(0), SEEN, ACTED, "Oscillator-v0", QUICK, 30)
    assert errors.episodes == 2 and len(errors.model) == 30
    assert errors.model[0] < 0.3 * errors.persistence[0]
    assert errors.model[0] < errors.model[-1] < 0.5 * errors.persistence[-1]
    ratio = np.sin(1.5) / np.sin(0.05)
    assert errors.persistence[-1] / errors.persistence[0] == pytest.approx(ratio, rel=0.1)
    assert errors.trusted == 30
    assert (made.limit, made.steps, made.dynamics.members) == (40, 18 * 40, 2)


def test_a_model_without_error_has_none_and_that_nothing_changes_is_persistence() -> None:
    """An environment in which every step adds what the networks' last biases say."""
    made = untrained()
    for name in ("0/w", "0/b", "1/w", "1/b"):
        made.params[name][...] = 0
    made.params["1/b"][..., :3] = 1.0  # times out_std: 0.1 in every step
    seen = (-1 + 0.1 * np.arange(11, dtype=np.float32))[:, None].repeat(3, 1)
    ends = np.zeros(10, bool)
    episode = Episode(seen, np.zeros((10, 2), np.float32), np.zeros(10, np.float32), ends, ends)
    errors = errors_by_horizon(made, [episode], 50)
    np.testing.assert_allclose(errors.model, 0, atol=1e-5)
    np.testing.assert_allclose(errors.persistence, 0.1 * np.arange(1, 11), rtol=1e-4)


def test_how_far_a_model_is_trusted() -> None:
    horizons, flat = np.arange(1, 6), np.ones(5)
    for model, expected in (([0.5] * 5, 5), ([0.5, 0.6, 1, 2, 0.1], 2), ([2] * 5, 0)):
        assert HorizonErrors(horizons, np.array(model), flat, 1).trusted == expected


def test_steps_end_where_episodes_terminate_and_not_where_they_are_cut() -> None:
    whole = oscillator(0, 2, 5)
    whole[1].terminations[-1], whole[1].truncations[-1] = True, False
    rows = transitions(whole, start=0)
    assert rows["discount"].tolist() == [1.0] * 9 + [0.0]
    np.testing.assert_array_equal(rows["next_observation"][:4], rows["observation"][1:5])
    assert limit_of(whole) == 5 and limit_of(whole[1:]) is None
    discrete = [e._replace(actions=np.array([3, 4, 3, 4, 5])) for e in whole]
    assert transitions(discrete, start=3)["action"].tolist() == [0, 1, 0, 1, 2] * 2


@pytest.mark.parametrize(
    ("episodes", "observation", "action", "reason"),
    [
        (oscillator(0, 1, 5), SEEN, ACTED, "at least 2 episodes"),
        (oscillator(0, 2, 5), {"type": "Discrete", "n": 3}, ACTED, "observations that are numbers"),
        (oscillator(0, 2, 5), SEEN, {"type": "MultiBinary", "n": 3}, "Box and Discrete actions"),
    ],
)
def test_what_cannot_be_learned_is_refused(
    episodes: Any, observation: Any, action: Any, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        learn(episodes, observation, action, "Toy-v0", QUICK, 5)
