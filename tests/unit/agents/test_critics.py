"""Critics evaluated together: random subsets, dropout, and the losses of SAC that use them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.learning import continuous_spec, discrete_spec, make_agent, random_block

from exarl.agents.critics import CLIMBED, KEYS, LEARNED, TARGET
from exarl.errors import ConfigError
from exarl.types import Arrays

CONTINUOUS, DISCRETE = continuous_spec((3,), 2), discrete_spec((3,), 4)
ONE = {"batch_size": 8, "learning_starts": 0, "updates_per_step": 1 / 16}


def batch(seed: int, size: int = 16, keys: bool = True) -> Arrays:
    rng = np.random.default_rng(seed)
    shapes = {"observation": 3, "next_observation": 3, "noise": 2, "next_noise": 2, "action": 2}
    rows = {name: rng.normal(size=(size, n)) for name, n in shapes.items()}
    rows |= {"reward": rng.normal(size=size), "discount": rng.random(size)}
    rows |= {KEYS: rng.normal(size=(size, 1))} if keys else {}
    return {name: array.astype("f4") for name, array in rows.items()}


def evaluated(agent: Any, xp: Any, rows: Arrays, use: int) -> np.ndarray:
    """[critics, N]"""
    found = agent.algorithm.critics.outputs(
        xp, agent._first, rows, use, rows["observation"], rows["action"]
    )
    return np.stack(found)[..., 0]


@pytest.mark.parametrize("use", [TARGET, LEARNED, CLIMBED])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_critics_evaluated_as_one_give_what_each_gives(use: int, dropout: float) -> None:
    agent = make_agent(CONTINUOUS, id="SAC-v0", critics=5, dropout=dropout)
    rows = {name: jnp.asarray(array) for name, array in batch(0).items()}
    together = evaluated(agent, jnp, rows, use)
    apart = evaluated(agent, np, batch(0), use)
    assert len(together) == (2 if use == TARGET else 5)
    np.testing.assert_allclose(together, apart, rtol=1e-4, atol=1e-5)


def test_the_subset_of_a_target_is_drawn_evenly_for_each_update() -> None:
    agent = make_agent(CONTINUOUS, id="SAC-v0", critics=5, critics_in_target=2)
    every = evaluated(agent, np, batch(0, keys=False), LEARNED)
    counts = np.zeros(5)
    for seed in range(200):
        rows = {**batch(0), KEYS: batch(seed)[KEYS]}
        subset = evaluated(agent, np, rows, TARGET)
        where = [int(np.abs(every - one).sum(1).argmin()) for one in subset]
        np.testing.assert_array_equal(subset, every[where])
        assert len(set(where)) == 2
        counts[where] += 1
    assert (np.abs(counts - 80) < 4 * np.sqrt(200 * 0.4 * 0.6)).all()


def test_a_target_is_the_least_of_its_subset() -> None:
    agent = make_agent(CONTINUOUS, id="SAC-v0", critics=4, critics_in_target=3)
    params, rows = agent._first, batch(1)
    actions, log_p = agent.algorithm.policy(
        np, params, rows["next_observation"], rows["next_noise"]
    )
    ahead = {**rows, "observation": rows["next_observation"], "action": actions}
    least = evaluated(agent, np, ahead, TARGET).min(0)
    expected = rows["reward"] + rows["discount"] * (least - np.exp(params["log_alpha"]) * log_p)
    np.testing.assert_allclose(agent.algorithm.targets(np, params, params, rows), expected, 1e-5)


@pytest.mark.parametrize("value", ["least", "mean"])
def test_the_policy_climbs_the_value_that_is_chosen(value: str) -> None:
    agent = make_agent(CONTINUOUS, id="SAC-v0", critics=4, policy_value=value)
    params, rows = agent._first, batch(2)
    actions, log_p = agent.algorithm.policy(np, params, rows["observation"], rows["noise"])
    q = evaluated(agent, np, {**rows, "action": actions}, CLIMBED)
    q = q.min(0) if value == "least" else q.mean(0)
    loss, _ = agent.algorithm.policy_loss(np, agent.hyper, params, None, rows)
    assert loss == pytest.approx(np.mean(np.exp(params["log_alpha"]) * log_p - q), rel=1e-5)


def test_masks_leave_out_their_part_and_keep_the_mean() -> None:
    agent = make_agent(CONTINUOUS, id="SAC-v0", hidden=(200, 100), dropout=0.25)
    critics, bits = agent.algorithm.critics, batch(0, size=500)[KEYS][:, 0].view(np.uint32)
    masks = [critics._masks(np, bits, number) for number in range(6)]  # of two critics, three uses
    seen = [mask for own in masks for mask in own.values()]
    assert {mask.shape for mask in seen} == {(500, 200), (500, 100)}
    for mask in seen:
        assert set(np.unique(mask)) == {0, np.float32(4 / 3)}
        assert mask.mean() == pytest.approx(1, abs=0.02)
        assert np.abs(mask.mean(0) - 1).max() < 0.15  # every unit,
        assert np.abs(mask.mean(1) - 1).max() < 0.35  # every row
    first = [own["0/kept"] > 0 for own in masks]
    for one in range(6):
        for other in range(one):
            assert (first[one] & first[other]).mean() == pytest.approx(0.75**2, abs=0.01)


def test_dropout_is_for_learning_alone() -> None:
    plain, dropping = (
        make_agent(CONTINUOUS, id="SAC-v0", dropout=rate, layer_norm=True) for rate in (0.0, 0.5)
    )
    assert set(plain._first) == set(dropping._first)  # masks are no parameters
    for rows in (batch(3), batch(3, keys=False)):
        np.testing.assert_array_equal(
            *(agent.action(rows["observation"])[0] for agent in (plain, dropping))
        )
        one, other = (evaluated(agent, np, rows, LEARNED) for agent in (plain, dropping))
        assert np.array_equal(one, other) is (KEYS not in rows)
    drawn = [agent.algorithm.draws(np.random.default_rng(0), 2, 8) for agent in (plain, dropping)]
    assert drawn[1].keys() - drawn[0].keys() == {KEYS}


def test_the_policy_waits_for_its_delay() -> None:
    agent = make_agent(CONTINUOUS, id="SAC-v0", learner=True, policy_delay=3, **ONE)
    moved = []
    for _ in range(6):
        before = {n: np.asarray(a) for n, a in agent.train_state.params.items()}
        agent.train(random_block(CONTINUOUS, 0))
        changed = {
            name.partition("/")[0]
            for name, array in agent.train_state.params.items()
            if not np.array_equal(array, before[name])
        }
        assert {"q1", "q2"} <= changed
        moved.append({"policy", "log_alpha"} <= changed)
    assert moved == [True, False, False] * 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"id": "SAC-v0", "critics": 1}, "critics_in_target=2 is more than there are: critics=1"),
        ({"id": "TD3-v0", "dropout": 0.1}, "TD3 does not learn with dropout"),
        ({"id": "TQC-v0", "quantiles": 2}, "quantiles_dropped=2 leaves none of quantiles=2"),
    ],
)
def test_what_does_not_go_together_is_refused(words: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_agent(CONTINUOUS, **words)


def test_ensembles_of_discrete_actions() -> None:
    agent = make_agent(DISCRETE, id="SAC-v0", critics=3, critics_in_target=1, dropout=0.1)
    rows = {**batch(4), "action": np.arange(16) % 4}
    every = agent.algorithm.q_values(np, agent._first, rows, TARGET, rows["observation"], None)
    assert [values.shape for values in every] == [(16, 4)]
    assert np.isfinite(agent.algorithm.targets(np, agent._first, agent._first, rows)).all()
