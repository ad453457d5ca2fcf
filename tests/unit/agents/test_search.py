"""Search-v0: an episode tries one point, its return belongs to it, and the best point is acted with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.envs import Aim, Counter, Identity
from support.learning import adapter_of, collect, learn, make_agent, make_rollout, through_storage

from exarl.errors import ConfigError
from exarl.types import ArraySpec, EnvSpec

QUICK = {"id": "Search-v0", "generation": 6}


def searched(env: Any, blocks: int, **config: Any) -> Any:
    return learn(lambda _: env(), blocks=blocks, width=4, steps=16, **{**QUICK, **config})[0]


def test_an_episode_is_of_one_point_and_its_return_is_the_points() -> None:
    spec = adapter_of(Counter(0)).spec
    agent, learner = make_agent(spec, **QUICK), make_agent(spec, learner=True, **QUICK)
    agent.set_weights(learner.get_weights())
    blocks = [collect(make_rollout(agent, Counter, [0, 1], steps=20))]
    block = blocks[0]
    points = block.recorded["point"]
    for b in range(2):
        begins = [0, *(np.flatnonzero(block.ended[:, b]) + 1).tolist()]
        for start, stop in zip(begins, [*begins[1:], 20], strict=True):
            assert (points[start:stop, b] == points[start, b]).all()
    assert len({p.tobytes() for p in points.reshape(-1, points.shape[-1])}) > 2
    learner.train(block)
    stored = learner.state()[0]
    values = np.concatenate([stored["tried/values"], stored["waiting/values"]])
    np.testing.assert_array_equal(values, block.episode_returns)
    ends = points.swapaxes(0, 1)[block.ended.T]
    kept = np.concatenate([stored["tried/points"], stored["waiting/points"]])
    np.testing.assert_array_equal(kept, ends)


class Track(Aim):
    """Episodes of twenty steps, in each of which the observation is the best action."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._t = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        _, reward, *_ = super().step(action)
        self._t += 1
        self._answer = self.np_random.uniform(-0.8, 0.8, 1).astype(np.float32)
        return self._answer, reward, self._t == 20, False, {}


@pytest.mark.parametrize("method", ["cma-es", "bayes"])
def test_a_linear_policy_learns_what_the_observation_says(method: str) -> None:
    agent = searched(Track, 60, method=method)
    seen = np.linspace(-0.8, 0.8, 9, dtype=np.float32)[:, None]
    far = np.abs(agent.action(seen)[0] - seen).mean()
    assert far < 0.15, "an untrained one is 0.44 away"


def test_a_pid_controller_sums_and_differs_within_an_episode() -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((2,), "float32"), ArraySpec((1,), "float32"), None,
                   (-1.0,), (1.0,))  # fmt: skip
    agent = make_agent(spec, form="pid", pid_input=1, pid_setpoint=2.0, **QUICK)
    scale, gains = [0, 0, 1, 4], [0.01, 0.1, 0.02, 0.3]  # deviations of 1 and 4; bias, P, I, D
    agent.set_weights(np.array([*scale, *gains, *gains], np.float32))
    memory = {name: array.zeros(1) for name, array in agent.memory.items()}
    sums, before = 0.0, None
    for seen in (6.0, 4.0, 1.0):
        error = (2.0 - seen) / 4
        sums += error
        change = 0.0 if before is None else error - before
        before = error
        action, _ = agent.action(np.array([[9.0, seen]], np.float32), None, memory)
        assert action[0, 0] == pytest.approx(0.01 + 0.1 * error + 0.02 * sums + 0.3 * change)


def test_a_constant_is_one_action() -> None:
    agent = searched(Identity, 3, form="constant")
    seen = np.eye(agent.spec.n_actions, 4, dtype=np.float32)
    assert len({*agent.action(seen)[0].tolist()}) == 1


def test_a_learner_goes_on_from_its_state() -> None:
    agent = searched(Identity, 4)
    arrays, numbers = through_storage(*agent.state())
    again = make_agent(agent.spec, learner=True, seed=9, **QUICK)
    again.restore(arrays, numbers)
    np.testing.assert_array_equal(again.get_weights(), agent.get_weights())
    for name, array in again.state()[0].items():
        np.testing.assert_array_equal(array, agent.state()[0][name], err_msg=name)


def test_what_cannot_be_searched_is_refused() -> None:
    wide = EnvSpec("Toy-v0", ArraySpec((84, 84, 3), "uint8"), ArraySpec((), "int64"), 4)
    with pytest.raises(ConfigError, match="too many to search"):
        make_agent(wide, **QUICK)
    with pytest.raises(ConfigError, match="pid_input=9"):
        make_agent(adapter_of(Identity()).spec, form="pid", pid_input=9, **QUICK)
