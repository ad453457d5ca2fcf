"""One environment as the rollout sees it: seeded, cut, counted, restorable."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from support.envs import Broken, Counter, Drift, Fickle, KeptDrift
from support.learning import adapter_of, assert_same_arrays, make_episode, through_storage

from exarl.envs.episode import Episode, check_finite
from exarl.errors import EnvironmentFailure
from exarl.learning.exploration import EVALUATION, episode_seed

SEEDS = range(4)


def play(episode: Episode, actions: list[int]) -> list[tuple[Any, ...]]:
    """What is seen on the way; a new episode begins whenever one ends."""
    seen = []
    for action in actions:
        observation, reward, terminated, truncated = episode.step(action)
        seen.append((np.array(observation).tolist(), reward, terminated, truncated))
        if terminated or truncated:
            seen.append((np.array(episode.begin()).tolist(), episode.number))
    return seen


def random_actions(seed: int, count: int) -> list[int]:
    actions: list[int] = np.random.default_rng(seed).integers(3, size=count).tolist()
    return actions


def test_an_episode_depends_on_its_number_and_nothing_before_it() -> None:
    one, other = make_episode(Drift(np.inf), env_id=3), make_episode(Drift(np.inf), env_id=3)
    one.begin()
    play(one, random_actions(0, 50))
    other.begin()
    np.testing.assert_array_equal(one.begin(), other.begin())
    assert one.number == other.number == 1
    assert play(one, random_actions(1, 20)) == play(other, random_actions(1, 20))


def test_episodes_differ_by_environment_number_seed_and_kind() -> None:
    def start(seed: int, env_id: int, number: int, **kind: int) -> tuple[float, ...]:
        env = Drift()
        episode = Episode(env, adapter_of(env), None, seed, env_id, **kind)
        for _ in range(number + 1):
            seen = episode.begin()
        return tuple(seen.tolist())

    names = [(s, e, n) for s in range(2) for e in range(3) for n in range(3)]
    starts = {start(*name) for name in names} | {start(*n, kind=EVALUATION) for n in names}
    assert len(starts) == 2 * len(names)


def test_the_environment_is_given_the_seed_of_its_episode() -> None:
    env, other = Drift(), Drift()
    episode = make_episode(env, seed=5, env_id=2)
    for number in range(3):
        other.reset(seed=episode_seed(5, 2, number))
        np.testing.assert_array_equal(episode.begin(), other._at)


@pytest.mark.parametrize(
    ("length", "limit", "end", "expected"),
    [
        (5, None, 5, (True, False)),
        (5, 9, 5, (True, False)),
        (9, 5, 5, (False, True)),
        (5, 5, 5, (True, False)),
        (0, 1, 1, (False, True)),
    ],
)
def test_the_limit_cuts_and_termination_stays_apart(
    length: int, limit: int | None, end: int, expected: tuple[bool, bool]
) -> None:
    episode = make_episode(Counter(lengths=[length]), limit)
    for _ in range(2):
        episode.begin()
        ends = [episode.step(0)[2:] for _ in range(end)]
        assert ends == [(False, False)] * (end - 1) + [expected]
        assert episode.length == end
        assert episode.total_reward == 100 * episode.number * end + sum(range(end + 1))


def test_an_environments_own_truncation_is_kept() -> None:
    class Cut(Counter):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, self._step == 2, info

    episode = make_episode(Cut(lengths=[0]), 5)
    episode.begin()
    assert [episode.step(0)[2:] for _ in range(2)] == [(False, False), (False, True)]


def test_the_final_observation_is_the_true_one() -> None:
    episode = make_episode(Counter(lengths=[3]))
    episode.begin()
    for step in range(1, 4):
        observation, *_ = episode.step(1)
        np.testing.assert_array_equal(observation, [0, 0, step])
    np.testing.assert_array_equal(episode.observation, [0, 0, 3])
    np.testing.assert_array_equal(episode.begin(), [0, 1, 0])
    assert (episode.length, episode.total_reward) == (0, 0.0)


# -- restoring ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Drift, KeptDrift])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("before", [0, 1, 23])
def test_a_restored_episode_continues_exactly(kind: Any, seed: int, before: int) -> None:
    episode = make_episode(kind(), 15, seed, env_id=4)
    episode.begin()
    play(episode, random_actions(seed, before))
    stored, _ = through_storage(episode.state())
    other = make_episode(kind(), 15, seed, env_id=4)
    other.restore(stored)
    assert other.restarts == 0
    names = ("number", "length", "total_reward")
    assert [getattr(episode, n) for n in names] == [getattr(other, n) for n in names]
    np.testing.assert_array_equal(episode.observation, other.observation)
    later = random_actions(seed + 100, 60)
    assert play(episode, later) == play(other, later)


@pytest.mark.parametrize("kind", [Drift, KeptDrift])
def test_an_episode_can_be_restored_twice(kind: Any) -> None:
    """The restored episode is itself whole again, its past included."""
    episode = make_episode(kind(np.inf), seed=1)
    episode.begin()
    play(episode, random_actions(1, 9))
    stored, _ = through_storage(episode.state())
    other = make_episode(kind(np.inf), seed=1)
    other.restore(stored)
    again, _ = through_storage(other.state())
    assert_same_arrays(stored, again)
    play(other, random_actions(2, 5))
    other.restore(again)
    later = random_actions(3, 20)
    assert play(other, later) == play(episode, later)


def test_a_snapshot_spares_the_environment_its_steps() -> None:
    episode = make_episode(KeptDrift(np.inf), seed=1)
    episode.begin()
    play(episode, random_actions(1, 9))
    env = KeptDrift(np.inf)
    make_episode(env, seed=1).restore(through_storage(episode.state())[0])
    assert env.steps == 0


@pytest.mark.parametrize("far", [np.inf, 2.0], ids=["runs on", "may end while it is replayed"])
def test_what_cannot_be_played_again_gives_way_to_a_new_episode(
    far: float, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        episode = make_episode(Fickle(np.inf), env_id=6)
        episode.begin()
        play(episode, random_actions(0, 20))
        caplog.clear()
        other = make_episode(Fickle(far), env_id=6)
        with caplog.at_level(logging.WARNING):
            other.restore(through_storage(episode.state())[0])
        assert other.restarts == 1
        assert (other.number, other.length, other.total_reward) == (1, 0, 0.0)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "environment 6" in caplog.text
        other.step(0)
        assert other.length == 1


def test_reset_of_the_wrong_shape_is_a_failure() -> None:
    with pytest.raises(EnvironmentFailure, match=r"environment 8.*\(1,\).*\(2,\)"):
        make_episode(Broken("reset shape"), env_id=8).begin()


def test_step_of_the_wrong_shape_is_a_failure() -> None:
    """One number where two belong would otherwise be spread over both."""
    episode = make_episode(Broken("shape"), env_id=8)
    episode.begin()
    with pytest.raises(EnvironmentFailure, match=r"environment 8.*\(1,\).*\(2,\)"):
        for _ in range(3):
            episode.step(0)


def test_close_closes_the_environment() -> None:
    env = Counter()
    make_episode(env).close()
    assert env.closed


# -- finite numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["observations", "rewards"])
def test_the_environment_behind_a_bad_number_is_named(bad: float, where: str) -> None:
    observations, rewards = np.zeros((4, 3, 2)), np.zeros((3, 3))
    check_finite([10, 11, 12], observations, rewards)
    if where == "observations":
        observations[2, 1, 0] = bad
    else:
        rewards[0, 1] = bad
    with pytest.raises(EnvironmentFailure, match="environment 11 "):
        check_finite([10, 11, 12], observations, rewards)
