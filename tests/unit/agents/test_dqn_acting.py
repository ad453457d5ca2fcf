"""What a DQN shows of itself: weights, exploration, action spaces, and targets made by actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from scipy import stats
from support.dqn import PLAIN, SMALL, SPEC, blocks, learned, learner, named, unpacked
from support.dqn import targets as reference_targets
from support.learning import (
    adapter_of,
    assert_same_arrays,
    make_agent,
    random_block,
    through_storage,
)

from exarl.errors import CheckpointError, ConfigError
from exarl.learning.exploration import Streams
from exarl.types import Arrays, ArraySpec, EnvSpec

# -- weights --------------------------------------------------------------------------------------


def test_weights_round_trip_and_carry_the_policy() -> None:
    trained = learner(1, **SMALL)
    for block in blocks(2):
        trained.train(block)
    weights = trained.get_weights()
    assert weights.dtype == np.float32
    assert weights.ndim == 1
    actor = make_agent(SPEC, seed=7, **SMALL)
    actor.set_weights(weights)
    np.testing.assert_array_equal(actor.get_weights(), weights)
    seen = random_block(SPEC, 5, steps=200, width=1).observations[:, 0]
    expected = trained.algorithm.q_values(np, named(unpacked(trained)), seen).argmax(1)
    assert len(set(expected.tolist())) > 1
    np.testing.assert_array_equal(actor.action(seen)[0], expected)
    with pytest.raises(ValueError, match="expected"):
        actor.set_weights(weights[:-1])


def test_the_target_network_acts_when_asked() -> None:
    agent = learner(act_with="target", **{**PLAIN, "tau": 0.0, "target_update_interval": 4})
    before = unpacked(agent)
    agent.train(random_block(SPEC, 0, steps=4, width=3))  # three updates
    assert_same_arrays(unpacked(agent), before)
    agent.train(random_block(SPEC, 1, steps=4, width=3))  # the fourth copies
    assert any(np.abs(array - before[n]).max() > 1e-4 for n, array in unpacked(agent).items())
    online = learned(agent, "params")
    assert any(np.abs(array - online[n]).max() > 1e-4 for n, array in unpacked(agent).items())


def test_weights_handed_out_do_not_change_with_training() -> None:
    agent = learner(**SMALL)
    weights = agent.get_weights()
    kept = weights.copy()
    agent.train(blocks(1)[0])
    np.testing.assert_array_equal(weights, kept)
    assert np.abs(agent.get_weights() - kept).max() > 1e-4


def test_an_actor_can_save_what_it_acts_with(tmp_path: Path) -> None:
    actor = make_agent(SPEC, seed=1)
    actor.save(tmp_path / "w.safetensors")
    other = make_agent(SPEC, seed=2)
    other.load(tmp_path / "w.safetensors")
    seen = random_block(SPEC, 5, steps=200, width=1).observations[:, 0]
    np.testing.assert_array_equal(actor.action(seen)[0], other.action(seen)[0])


def test_a_learner_starts_from_loaded_weights(tmp_path: Path) -> None:
    trained = learner(1, **SMALL)
    trained.train(blocks(1)[0])
    trained.save(tmp_path / "w.safetensors")
    agent = make_agent(SPEC, seed=2, **SMALL)
    agent.load(tmp_path / "w.safetensors")
    agent.set_learner()
    assert_same_arrays(unpacked(agent), unpacked(trained))


def test_damaged_and_foreign_weights_are_refused(tmp_path: Path) -> None:
    good, agent = tmp_path / "good.safetensors", make_agent(SPEC)
    make_agent(SPEC, hidden=(9,), learner=True, **SMALL).save(good)
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(good.read_bytes()[:-7])
    for path in (good, bad, tmp_path / "absent.safetensors"):
        with pytest.raises(CheckpointError, match=path.name):
            agent.load(path)


# -- exploration ----------------------------------------------------------------------------------


def test_epsilon_travels_in_the_weights() -> None:
    parameters = {**SMALL, "epsilon": 1.0, "epsilon_min": 0.0, "epsilon_steps": 16}
    trained = learner(**parameters)
    actor = make_agent(SPEC, **parameters)
    seen = np.tile(random_block(SPEC, 1).observations[:1, :1, :], (1, 2000, 1))[0]
    actor.set_weights(trained.get_weights())
    counts = np.bincount(actor.action(seen, Streams(0, range(2000)))[0], minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert trained.train(blocks(1)[0])["epsilon"] == 0.0  # 16 steps
    actor.set_weights(trained.get_weights())
    chosen = actor.action(seen, Streams(0, range(2000)))[0]
    np.testing.assert_array_equal(chosen, actor.action(seen)[0])


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"epsilon": 0.9, "epsilon_min": 0.1, "epsilon_decay": 0.99}, 0.9 * 0.99**32),
        ({"epsilon": 0.9, "epsilon_min": 0.1, "epsilon_steps": 64}, 0.5),
        ({"epsilon": 0.9, "epsilon_min": 0.1, "epsilon_steps": 20}, 0.1),
    ],
)
def test_epsilon_follows_the_environment_steps(
    parameters: dict[str, float], expected: float
) -> None:
    agent = learner(learning_starts=10**6, **parameters)
    for block in blocks(2):
        epsilon = agent.train(block)["epsilon"]
    assert epsilon == pytest.approx(expected)


def test_nothing_is_learned_before_learning_starts() -> None:
    agent = learner(**{**SMALL, "learning_starts": 33})
    before = unpacked(agent)
    assert [agent.train(block)["updates"] for block in blocks(2)] == [0, 0]
    assert_same_arrays(unpacked(agent), before)
    assert agent.train(blocks(1)[0])["updates"] == 4


def test_recorded_arrays_match_their_declaration() -> None:
    agent = make_agent(SPEC)
    actions, recorded = agent.action(random_block(SPEC, 0).observations[0], Streams(0, [0, 1]))
    assert actions.shape == (2,)
    assert recorded.keys() == agent.recorded.keys()


# -- action spaces --------------------------------------------------------------------------------


class Steering(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(np.float32([-2, 0]), np.float32([2, 1]))


def test_a_box_is_acted_on_through_bins() -> None:
    adapter = adapter_of(Steering(), bins=3)
    assert adapter.spec.n_actions == 9
    agent = make_agent(adapter.spec, epsilon=1.0, nactions=3)
    seen = np.zeros((500, 3), np.float32)
    chosen, _ = agent.action(seen, Streams(0, range(500)))
    taken = {tuple(adapter.decode(index).tolist()) for index in chosen.tolist()}
    assert taken == {(a, b) for a in (-2, 0, 2) for b in (0, 0.5, 1)}


def test_continuous_actions_are_refused() -> None:
    spec = EnvSpec(
        "Toy-v0", ArraySpec((3,), "float32"), ArraySpec((1,), "float32"), None, (-1.0,), (1.0,)
    )
    with pytest.raises(ConfigError, match="discrete"):
        make_agent(spec)


# -- targets made by actors ---------------------------------------------------------------------------


def by_actors(kind: str = "actor", **parameters: Any) -> dict[str, Any]:
    return {**PLAIN, "double": True, "n_step": 2, "data_generation": kind, **parameters}


def actor_of(trained: Any, parameters: dict[str, Any]) -> Any:
    actor = make_agent(SPEC, seed=8, **parameters)
    actor.set_weights(trained.get_weights())
    return actor


@pytest.mark.parametrize("act_with", ["online", "target"])
@pytest.mark.parametrize("double", [True, False])
def test_actors_make_the_targets_the_learner_would_make(double: bool, act_with: str) -> None:
    parameters = by_actors(double=double, act_with=act_with)
    trained = learner(**parameters)
    trained.train(make_agent(SPEC, **parameters).prepare(blocks(1)[0]))
    actor, block = actor_of(trained, parameters), blocks(1, first=7)[0]
    prepared = actor.prepare(block)
    online, target = (
        {n: a.astype(float) for n, a in learned(trained, part).items()}
        for part in ("params", "target")
    )
    assert any(np.abs(online[n] - target[n]).max() > 1e-3 for n in online)
    expected = reference_targets(
        online,
        target,
        actor.algorithm.transitions(np, actor.hyper, block),
        double=double,
        dueling=False,
    )
    np.testing.assert_allclose(
        prepared.recorded["target"], expected.reshape(8, 2), rtol=1e-4, atol=1e-5
    )
    assert {n: a.dtype for n, a in prepared.recorded.items()} == {"target": np.float32}
    shown = target if act_with == "target" else online
    np.testing.assert_allclose(actor.policy.parts["q"]["0/w"], shown["0/w"], rtol=1e-6)


def test_the_first_update_is_the_same_whoever_makes_the_targets() -> None:
    ends = []
    for kind in ("learner", "actor"):
        parameters = by_actors(kind, updates_per_step=1 / 16)
        trained = learner(**parameters)
        trained.train(actor_of(trained, parameters).prepare(blocks(1)[0]))
        ends.append({n: np.asarray(a) for n, a in trained.train_state.params.items()})
    for name, array in ends[0].items():
        np.testing.assert_allclose(ends[1][name], array, rtol=1e-5, atol=1e-6)


def test_a_group_shares_the_work_on_targets() -> None:
    parameters = by_actors("group")
    members = [make_agent(SPEC, **parameters) for _ in range(3)]
    shares: list[int] = []

    def spread(rows: Arrays) -> Arrays:
        parts = []
        for member, where in zip(members, np.array_split(np.arange(16), 3), strict=True):
            parts.append(member.generate({n: a[where] for n, a in rows.items()})["target"])
            shares.append(len(parts[-1]))
        return {"target": np.concatenate(parts)}

    block = blocks(1)[0]
    together, alone = members[0].prepare(block, spread), members[0].prepare(block)
    np.testing.assert_allclose(
        together.recorded["target"], alone.recorded["target"], rtol=1e-5, atol=1e-6
    )
    assert shares == [6, 5, 5]


def test_a_learner_leaves_blocks_as_they_are() -> None:
    block = blocks(1)[0]
    assert make_agent(SPEC).prepare(block) is block


def test_a_learner_of_ready_targets_continues_bit_by_bit() -> None:
    parameters = by_actors(optimizer="adam")
    agent, other = learner(1, **parameters), learner(2, **parameters)
    prepared = [make_agent(SPEC, **parameters).prepare(block) for block in blocks(4)]
    for block in prepared[:2]:
        agent.train(block)
    other.restore(*through_storage(*agent.state()))
    for block in prepared[2:]:
        assert agent.train(block) == other.train(block)
    np.testing.assert_array_equal(agent.get_weights(), other.get_weights())
