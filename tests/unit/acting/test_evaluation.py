"""Playing a policy greedily."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.envs import Counter, Drift
from support.learning import adapter_of, make_agent, make_episode

from exarl.acting.evaluation import Evaluator, Played, greedy, play
from exarl.types import EnvSpec


def preferring(spec: EnvSpec, action: int) -> Any:
    """An agent that always prefers ``action``, but explores whenever it is let."""
    agent = make_agent(spec, epsilon=1.0)
    weights = agent._layout.unpack(np.zeros(agent._layout.size, np.float32))
    weights["q/1/b"][action] = 1
    agent.set_weights(agent._layout.pack({**weights, "now/epsilon": 1.0}))
    return agent


def test_an_episode_is_played_greedily_to_its_end() -> None:
    episode = make_episode(Counter(lengths=[4, 0]), limit=6)
    agent = preferring(adapter_of(episode.env).spec, 1)
    assert play(greedy(agent), episode) == Played(10 + 4 * 0.5, 4, terminated=True)
    assert play(greedy(agent), episode) == Played(600 + 21 + 6 * 0.5, 6, terminated=False)


def test_same_weights_same_episode() -> None:
    agent = make_agent(adapter_of(Drift()).spec, epsilon=1.0)
    episodes = [make_episode(Drift(), limit=30, seed=2) for _ in range(2)]
    results = [[play(greedy(agent), episode) for _ in range(4)] for episode in episodes]
    assert results[0] == results[1]
    assert len({played.total_reward for played in results[0]}) == 4


def test_every_state_is_shown() -> None:
    episode = make_episode(Counter(lengths=[3]))
    shown: list[tuple[int, int]] = []
    agent = preferring(adapter_of(episode.env).spec, 0)
    play(greedy(agent), episode, lambda seen: shown.append((seen.length, seen.env._step)))
    assert shown == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_closing_an_evaluator_closes_its_environment() -> None:
    env = Counter(lengths=[3])
    agent = preferring(adapter_of(env).spec, 0)
    evaluator = Evaluator(agent, make_episode(env), every=10, episodes=2)
    evaluator.offer(10, agent.get_weights)
    evaluation = evaluator.result(wait=True)
    assert evaluation is not None and evaluation.lengths == [3, 3]
    assert not env.closed, "the next evaluation plays in it"
    evaluator.close()
    assert env.closed
