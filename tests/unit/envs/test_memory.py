"""The environments that ask for a memory."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from exarl.envs.memory import ExaMaskedCartPole, ExaRecall
from exarl.envs.registration import find_spec, make_env
from exarl.errors import ConfigError


@pytest.mark.parametrize("seed", range(3))
def test_masked_cartpole_is_cartpole_without_its_velocities(seed: int) -> None:
    masked, full = ExaMaskedCartPole(), gymnasium.make("CartPole-v1")
    actions = np.random.default_rng(seed).integers(2, size=500).tolist()
    seen, _ = masked.reset(seed=seed)
    shown, _ = full.reset(seed=seed)
    over = False
    while not over:
        np.testing.assert_array_equal(seen, shown[[0, 2]])
        assert masked.observation_space.contains(seen)
        action = actions.pop()
        seen, *ours, _ = masked.step(action)
        shown, *theirs, _ = full.step(action)
        assert ours == theirs
        over = theirs[1]
    assert masked.observation_space.shape == (2,)
    assert find_spec("ExaMaskedCartPole-v0").max_episode_steps == 500


@pytest.mark.parametrize(("cues", "delay"), [(4, 8), (2, 0), (3, 1)])
@pytest.mark.parametrize("right", [True, False])
def test_recall_shows_waits_asks_and_pays(cues: int, delay: int, right: bool) -> None:
    env = ExaRecall(cues, delay)
    seen, _ = env.reset(seed=1)
    cue = int(seen.argmax())
    assert cue < cues
    shown, paid, ends = [], [], []
    for step in range(delay + 2):
        named = cue if right or step <= delay else (cue + 1) % cues
        observation, reward, terminated, truncated, _ = env.step(named)
        assert observation.sum() == 1
        assert not truncated
        shown.append(int(observation.argmax()) - cues)
        paid.append(reward)
        ends.append(terminated)
    assert shown == [1] * delay + [0, 1]  # blank, then the flag; the last one is never acted on
    assert paid == [0.0] * (delay + 1) + [float(right)]
    assert ends == [False] * (delay + 1) + [True]


def test_all_cues_are_shown_equally_often() -> None:
    env = ExaRecall()
    counts = np.bincount([int(env.reset(seed=n)[0].argmax()) for n in range(2000)], minlength=6)
    assert counts[4:].tolist() == [0, 0]
    assert np.abs(counts[:4] - 500).max() < 5 * (2000 * 3 / 16) ** 0.5


@pytest.mark.parametrize("values", [{"cues": 1}, {"delay": -1}])
def test_nonsense_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="cues must be at least 2"):
        make_env("ExaRecall-v0", values)
