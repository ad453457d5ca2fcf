"""Simulations of several agents, as environments of one agent each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.parallel import AGENTS, Rope

from exarl.acting.env_batch import EnvBatch
from exarl.acting.evaluation import play
from exarl.acting.joint_episode import JointEpisode
from exarl.envs.check import check_environment
from exarl.envs.episode import Episode
from exarl.envs.joint import Joint, members_of
from exarl.envs.member import make_episode
from exarl.envs.registration import make_env
from exarl.envs.spaces import adapt
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.types import Arrays, Row


def episodes_of(id: str = "Rope-v0", limit: int | None = None, first: int = 0) -> list[Episode]:
    env, _ = make_env(f"support.parallel:{id}", {})
    members = members_of(env)
    spaces = members[0].observation_space, members[0].action_space
    adapter = adapt(
        id, *spaces, action_kind="discrete", nactions=2, max_episode_steps=limit, frames=1
    )
    return [make_episode(m, adapter, limit, 7, i) for i, m in enumerate(members, first)]


def row_of(width: int, change: bool = False) -> Row:
    rewards, flags = np.zeros(width, np.float32), np.zeros((2, width), bool)
    absent = np.zeros(width * change, bool)
    return Row(np.zeros((width, 3), np.float32), rewards, *flags, np.zeros((width, 2, 0)), absent)


def step(envs: EnvBatch, actions: list[int]) -> tuple[Row, list[Any]]:
    row = row_of(len(actions))
    ends, cuts = envs.step(actions, row)
    assert not cuts
    return row, ends


@pytest.mark.parametrize("seed", range(3))
def test_every_slot_is_given_what_the_simulation_gives_its_agent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    envs, rope = EnvBatch([*episodes_of(), *episodes_of(first=3)]), Rope()
    envs.begin()
    before = np.zeros((6, 3), np.float32)
    envs.observe(before)
    first = envs._episodes[0]
    ended = 0
    for _ in range(40):
        rope.places, rope.left = first.joint._env.places.copy(), 99  # type: ignore[union-attr]
        actions = rng.integers(2, size=6).tolist()
        seen, rewards, *_ = rope.step(dict(zip(AGENTS, actions, strict=False)))
        row, ends = step(envs, actions)
        assert row.rewards[:3] == pytest.approx([rewards[agent] for agent in AGENTS])
        own = [end for end in ends if end.slot < 3]
        assert len(own) in (0, 3) and [*row.terminated[:3]] == [bool(own)] * 3
        found = np.array([e.observation for e in own]) if own else row.observations[:3]
        np.testing.assert_array_equal(found, [seen[agent] for agent in AGENTS])
        if own:  # of the next episode, in which all begin together
            ended += 1
            places = first.joint._env.places.astype(np.float32)  # type: ignore[union-attr]
            np.testing.assert_array_equal(row.observations[:3, 0], places)
    assert ended > 2


def test_arrays_that_are_written_again_are_no_others_observations() -> None:
    plain, reusing = EnvBatch(episodes_of()), EnvBatch(episodes_of("ReusingRope-v0"))
    plain.begin()
    reusing.begin()
    ended = 0
    for t in range(40):
        (row, ends), (other, finals) = (step(each, [t % 2, 1, 0]) for each in (plain, reusing))
        np.testing.assert_array_equal(row.observations, other.observations)
        for end, final in zip(ends, finals, strict=True):
            np.testing.assert_array_equal(end.observation, final.observation)
        ended += len(ends)
    assert ended > 6


def test_a_limit_cuts_the_episode_of_all() -> None:
    envs = EnvBatch(episodes_of(limit=4))
    envs.begin()
    rows = [step(envs, [0, 1, 0])[0] for _ in range(4)]
    assert [row.truncated.all() for row in rows] == [False, False, False, True]
    assert not any(row.terminated.any() for row in rows)


@pytest.mark.parametrize("id", ["Rope-v0", "KeptRope-v0", "ReusingRope-v0"])
@pytest.mark.parametrize("steps", [0, 3, 17, 31])
def test_running_episodes_go_on_from_their_state(id: str, steps: int) -> None:
    rng = np.random.default_rng(steps)
    envs, other = EnvBatch(episodes_of(id)), EnvBatch(episodes_of(id))
    envs.begin()
    for _ in range(steps):
        step(envs, rng.integers(2, size=3).tolist())
    state = envs.state()
    assert ("0/actions" in state) == (id != "KeptRope-v0")
    other.restore(state)
    assert not other.changed
    for _ in range(20):
        actions = rng.integers(2, size=3).tolist()
        for mine, theirs in zip(step(envs, actions)[0], step(other, actions)[0], strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("slot", range(3))
def test_if_one_agent_is_not_where_it_was_all_begin_again(slot: int) -> None:
    envs, other = EnvBatch(episodes_of()), EnvBatch(episodes_of())
    envs.begin()
    for _ in range(3):
        step(envs, [1, 0, 1])
    state: Arrays = envs.state()
    state[f"{slot}/observation"] = state[f"{slot}/observation"] + 1
    other.restore(state)
    assert [(cut.slot, cut.number, cut.length) for cut in other.changed] == [
        (i, 1, 3) for i in range(3)
    ]
    fresh = EnvBatch(episodes_of())
    fresh.restore({})
    for each in (other, fresh):
        while not step(each, [1, 1, 1])[1]:
            pass


def test_an_evaluation_pays_the_mean_over_the_agents() -> None:
    env, _ = make_env("support.parallel:Rope-v0", {})
    members, twins = episodes_of(), episodes_of()
    played = play(lambda episode: [0, 1, 0], JointEpisode(members))
    envs = EnvBatch(twins)
    envs.begin()
    while not (ends := step(envs, [0, 1, 0])[1]):
        pass
    assert played.total_reward == pytest.approx(np.mean([end.total_reward for end in ends]))
    assert played.terminated and played.length == ends[0].length
    assert isinstance(env, Joint)
    env.reset(seed=1)
    assert env.step((0, 1, 0))[1] == pytest.approx(-np.abs(env._env.places).mean())


def test_the_simulation_is_closed_once_with_its_agents() -> None:
    episodes = episodes_of()
    for episode in episodes:
        episode.close()
    assert episodes[0].joint._env.closed  # type: ignore[union-attr]


@pytest.mark.parametrize("id", ["KeptRope-v0", "Visitors-v0"])
def test_the_checks_find_nothing_to_mend(id: str) -> None:
    found = {f.check: f for f in check_environment(f"support.parallel:{id}", {}, steps=20)}
    assert not [f for f in found.values() if f.passed is False]
    assert "observations (3,), 2 actions" in found["spaces"].detail
    assert "agents: left, middle, right" in found["spaces"].detail


@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("UnequalRope-v0", "left and right have different action spaces, Discrete.2. and Discrete"),
        ("TurnsRope-v0", "take turns .AEC.: give its parallel_env"),
    ],
)
def test_what_cannot_share_a_policy_is_refused(id: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_env(f"support.parallel:{id}", {})


@pytest.mark.parametrize(
    ("id", "why"),
    [
        (
            "EarlyRope-v0",
            "agent middle begins or ends an episode while others are in one: train with",
        ),
        ("LateRope-v0", "agent right begins or ends an episode while others are in one"),
    ],
)
def test_agents_that_come_and_go_unexpectedly_are_an_error(id: str, why: str) -> None:
    envs = EnvBatch(episodes_of(id))
    with pytest.raises(EnvironmentFailure, match=why):
        for _ in range(12):
            envs.begin()
            step(envs, [0, 0, 0])


def test_agents_come_and_go_where_they_may() -> None:
    """Against the plan of the simulation: who is there, what each sees and is paid, when it ends."""
    envs = EnvBatch(episodes_of("Visitors-v0"))
    envs.begin()
    bare: Any = envs._episodes[0].joint._env  # type: ignore[attr-defined]
    lengths, sums = [0, 0, 0], [0.0, 0.0, 0.0]
    simulations = comings = 0
    for _ in range(200):
        plan, now = bare.plan, bare.now
        row = row_of(3, change=True)
        ends, _ = envs.step([1, 0, 1], row)
        last = now + 1 == len(plan)
        np.testing.assert_array_equal(row.absent, ~plan[now])
        following = np.zeros(3, bool) if last else plan[now + 1]
        np.testing.assert_array_equal(row.terminated, plan[now] & ~following)
        assert not row.truncated.any() and [e.slot for e in ends] == [
            *np.flatnonzero(row.terminated)
        ]
        for place in np.flatnonzero(plan[now]):
            lengths[place] += 1
            sums[place] += lengths[place]
            assert row.rewards[place] == lengths[place]
        assert (row.rewards[row.absent] == 0).all()
        for end in ends:
            assert (end.length, end.total_reward) == (lengths[end.slot], sums[end.slot])
            assert [*end.observation[1:]] == [end.length, now + 1]
            lengths[end.slot], sums[end.slot] = 0, 0.0
        for place in np.flatnonzero(following & ~plan[now]):  # it has come
            comings += 1
            assert [*row.observations[place, 1:]] == [0, now + 1]
        simulations += last
    assert simulations > 10 and comings > 20


@pytest.mark.parametrize("id", ["Visitors-v0", "KeptVisitors-v0"])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13])
def test_those_who_come_and_go_are_where_they_were(id: str, steps: int) -> None:
    envs, other = EnvBatch(episodes_of(id)), EnvBatch(episodes_of(id))
    envs.begin()

    def step(batch: EnvBatch, t: int) -> tuple[Row, list[Any]]:
        row = row_of(3, change=True)
        return row, batch.step([t % 2, 1, 0], row)[0]

    for t in range(steps):
        step(envs, t)
    other.restore(envs.state())
    assert not other.changed
    for t in range(20):
        (mine, ends), (theirs, others) = step(envs, t), step(other, t)
        for one, two in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, two)
        assert [e[2:] for e in ends] == [e[2:] for e in others]


def test_an_evaluation_pays_what_agents_got_in_all_their_episodes() -> None:
    members = episodes_of("Visitors-v0")
    episode = JointEpisode(members)
    played = play(lambda episode: [0, 1, 0], episode)
    plan = episode.env._env.plan
    paid = [0.0] * 3
    for place in range(3):
        stay = 0
        for here in plan[:, place]:
            stay = stay + 1 if here else 0
            paid[place] += stay
    took_part = plan.any(0)
    assert played.total_reward == pytest.approx(np.array(paid)[took_part].mean())
    assert played.length == len(plan) and played.terminated


def test_a_common_reward_is_the_mean_over_the_agents_that_are_there() -> None:
    own, _ = make_env("support.parallel:Visitors-v0", {})
    common, _ = make_env("support.parallel:Visitors-v0", {}, common_reward=True)
    own.reset(seed=3)
    common.reset(seed=3)
    for _ in range(4):
        paid = [env.step((0, 1, 0))[1] for env in (own, common)]
        assert paid[0] == pytest.approx(paid[1])
        outcomes = [o for o in common._outcomes if o is not None]  # type: ignore[attr-defined]
        assert [o[1] for o in outcomes] == pytest.approx([paid[0]] * len(outcomes))
