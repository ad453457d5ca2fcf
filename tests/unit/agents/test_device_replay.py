"""A replay on the device: the same learning as from the host, and nothing lost on the way."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from support.dqn import SPEC, blocks, learned
from support.learning import (
    assert_same_arrays,
    continuous_spec,
    make_agent,
    random_block,
    through_storage,
)
from support.team import Meeting, ThreadTeam

from exarl.agents import device_replay
from exarl.agents.device_replay import Store
from exarl.agents.offpolicy import beta_after
from exarl.errors import CheckpointError, ConfigError
from exarl.replay import PrioritisedReplay

QUICK = {"batch_size": 6, "learning_starts": 0, "updates_per_step": 0.25, "replay_capacity": 40}
DEVICE = {**QUICK, "replay_device": "device"}
RATED = {**DEVICE, "priority_scale": 0.6}
CONTINUOUS = continuous_spec()


def store_of(seed: int, size: int, capacity: int, priorities: np.ndarray | None = None) -> Store:
    """A store of ``size`` rows that know their place."""
    ring = device_replay.empty_ring(capacity, {"place": np.zeros(1, np.int32)})
    ring = device_replay.add_to_ring(ring, {"place": np.arange(size, dtype=np.int32)})
    if priorities is None:
        return Store(ring, np.uint32(seed))
    mass = np.zeros(capacity, np.float32)
    mass[:size] = priorities
    return Store(ring, np.uint32(seed), jax.numpy.array(mass), np.float32(priorities.max()))


def test_every_row_that_is_kept_has_a_place_of_its_own() -> None:
    """Of more rows than the ring holds the newest are kept, of those that are known."""
    ring = device_replay.empty_ring(4, {"place": np.zeros(1, np.int32)})._replace(next=3)
    known = np.array([1, 1, 0, 1, 1, 0, 1], bool)
    for rows, places, count in (
        ({"known": known}, [4, 0, 4, 1, 2, 4, 3], 5),
        ({"known": ~known}, [4, 4, 3, 4, 4, 0, 4], 2),
        ({"known": known & ~known}, [4] * 7, 0),
        ({}, [4, 4, 4, 2, 3, 0, 1], 7),
    ):
        found, kept = device_replay.places_for(ring, {"place": np.arange(7), **rows})
        assert (found.tolist(), int(kept)) == (places, count)


def nothing_more(*_: Any) -> dict[str, Any]:
    return {}


def draw(store: Store, count: int, number: int = 0, beta: float = 0.4) -> dict[str, np.ndarray]:
    sums = None if store.mass is None else jax.numpy.cumsum(store.mass)
    batch, _ = device_replay.batch(nothing_more, count, store, sums, beta, number)
    return {name: np.asarray(array) for name, array in batch.items()}


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_drawn_alike_or_in_proportion_to_their_priorities(seed: int) -> None:
    size, count = 30, 60_000
    priorities = np.random.default_rng(seed).uniform(0.1, 3, size).astype(np.float32)
    for store, chances in (
        (store_of(seed, size, 40), np.full(size, 1 / size)),
        (store_of(seed, size, 40, priorities), priorities / priorities.sum()),
    ):
        found = np.bincount(draw(store, count)["place"], minlength=40)
        assert not found[size:].any()
        surprise = (found[:size] - count * chances) ** 2 / (count * chances)
        assert surprise.sum() < 70  # chi-square, 29 degrees: over it once in 30,000


def test_a_ring_that_is_nearly_all_one_row_still_finds_rows_that_are_there() -> None:
    store = store_of(0, 3, 1000, np.float32([1e-6, 1e6, 1e-6]))
    assert set(draw(store, 1000)["place"].tolist()) <= {0, 1, 2}


def test_importance_weights_are_those_of_the_host() -> None:
    priorities = np.random.default_rng(1).uniform(0.1, 3, 8)
    host = PrioritisedReplay(8, alpha=0.6)
    host.add({"place": np.arange(8, dtype=np.int32)})
    host.update(np.arange(8), priorities)
    mass = ((priorities + device_replay.EPSILON) ** 0.6).astype(np.float32)
    batch = draw(store_of(3, 8, 8, mass), 64, beta=0.7)
    np.testing.assert_allclose(
        batch["weight"], (mass[batch["place"]].min() / mass[batch["place"]]) ** 0.7, rtol=1e-5
    )
    theirs = host.sample(np.random.default_rng(0), 64, beta=0.7)
    ours = dict(zip(batch["place"].tolist(), batch["weight"] / batch["weight"].max(), strict=True))
    scale = batch["weight"].max() * theirs["weight"].max()
    for place, weight in zip(theirs["place"].tolist(), theirs["weight"], strict=True):
        if place in ours:
            assert ours[place] == pytest.approx(weight / scale, rel=1e-4)


def beta_of(agent: Any) -> float:
    return float(beta_after(np, agent.config, agent.hyper, agent._updates_made))


def drawing(agent: Any) -> Any:
    """What an agent's update draws after rows have come: the batch, its places, and the store."""

    @jax.jit
    def draw(store: Store, rows: Any, beta: Any, number: Any) -> Any:
        store = device_replay.added(store, rows)
        sums = None if store.mass is None else jax.numpy.cumsum(store.mass)
        return *device_replay.batch(agent.algorithm.draws, 6, store, sums, beta, number), store

    return draw


@pytest.mark.parametrize(
    ("id", "spec"),
    [("DQN-v0", SPEC), pytest.param("TD3-v0", CONTINUOUS, marks=pytest.mark.slow)],
)
def test_updates_are_those_of_the_host_with_the_same_batches(id: str, spec: Any) -> None:
    """Also when the ring has turned over, and by priorities that earlier blocks have set."""
    agent, host = (
        make_agent(spec, id=id, learner=True, **{**RATED, "replay_device": place})
        for place in ("device", "host")
    )
    draw = drawing(agent)
    for seed in range(4):
        block = random_block(spec, seed)
        rows = agent.algorithm.rows(np, agent.hyper, block)
        store = agent.experience._store or agent.experience.empty(rows)
        made = agent._updates_made
        drawn = [draw(store, rows, beta_of(agent), made + i)[0] for i in range(4)]
        host.experience.sample = lambda *_, drawn=drawn: {
            n: np.stack([np.asarray(batch[n]) for batch in drawn]) for n in drawn[0]
        }
        host.train(block)
        host.experience._unrated = None
        metrics = agent.train(block)
        assert metrics["updates"] == 4
        for name, array in learned(host, "params").items():
            np.testing.assert_allclose(learned(agent, "params")[name], array, rtol=1e-4, atol=1e-6)


def test_priorities_are_the_errors_and_new_rows_get_the_largest() -> None:
    agent = make_agent(SPEC, learner=True, **{**RATED, "updates_per_step": 1 / 16})
    draw, largest = drawing(agent), np.float32(1)
    for block in blocks(2):
        rows = agent.algorithm.rows(np, agent.hyper, block)
        store = agent.experience._store or agent.experience.empty(rows)
        batch, places, store = draw(store, rows, beta_of(agent), agent._updates_made)
        batch = {name: np.asarray(array) for name, array in batch.items()}
        expected, size = np.array(store.mass), int(store.ring.size)
        assert (expected[size - len(rows["reward"]) : size] == largest).all()
        online, target = (
            {name: np.array(array) for name, array in getattr(agent.train_state, part).items()}
            for part in ("params", "target")
        )
        taken = agent.algorithm.q_values(np, online, batch["observation"])[
            np.arange(6), batch["action"]
        ]
        errors = np.abs(agent.algorithm.targets(np, online, target, batch) - taken)
        rated = (errors + device_replay.EPSILON) ** 0.6
        for place in set(np.asarray(places).tolist()):
            expected[place] = rated[np.asarray(places) == place].max()
        agent.train(block)
        stored = agent.experience.state()
        np.testing.assert_allclose(stored["mass"], expected[:size], rtol=1e-4)
        largest = stored["largest"]
        assert largest == pytest.approx(max(1.0, expected.max()), rel=1e-4)


@pytest.mark.parametrize(
    ("parameters", "count"),
    [(DEVICE, 0), (RATED, 6), pytest.param({**RATED, "units": 4}, 2, marks=pytest.mark.slow)],
)
def test_a_restored_learner_goes_on_bit_for_bit(parameters: dict[str, Any], count: int) -> None:
    """Empty, full and partly filled; rows are transitions or, with memory, sequences."""
    make = partial(make_agent, SPEC, learner=True, **parameters)
    agent, again = make(), make(seed=5)
    seen = [_with_memory(agent, block) for block in blocks(count + 3)]
    for block in seen[:count]:
        agent.train(block)
    again.restore(*through_storage(*agent.state()))
    for block in seen[count:]:
        assert agent.train(block) == again.train(block)
    assert_same_arrays(agent.state()[0], again.state()[0])


def _with_memory(agent: Any, block: Any) -> Any:
    for name, spec in agent.recorded.items():
        block.recorded[name] = spec.zeros(*block.rewards.shape)
    return block


def test_the_rows_stay_where_they_are() -> None:
    """The compiled call takes the replay's memory over and needs little beside it."""
    agent = make_agent(SPEC, learner=True, **{**RATED, "replay_capacity": 100_000})
    rows = agent.algorithm.rows(np, agent.hyper, blocks(1)[0])
    store = agent.experience.empty(rows)
    numbers = (np.int32(0), np.float32(1), 4)
    needs = agent.experience._compiled.lower(agent.train_state, store, rows, *numbers).compile()
    size = sum(array.nbytes for array in jax.tree.leaves(store))
    assert needs.memory_analysis().alias_size_in_bytes >= size
    assert needs.memory_analysis().temp_size_in_bytes < size / 3  # sums of the priorities


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    agent = make_agent(SPEC, learner=True, **{**DEVICE, "replay_capacity": 10**9 * 100})
    with pytest.raises(ConfigError, match=r"^replay_capacity=\d+ needs .* GB on the learner's"):
        agent.train(blocks(1)[0])
    team = ThreadTeam(Meeting(2), 0, 1)
    with pytest.raises(ConfigError, match="host with several learners"):
        make_agent(SPEC, **DEVICE).join_team(team)


def test_a_checkpoint_of_the_other_kind_is_refused() -> None:
    on_device, on_host = (make_agent(SPEC, learner=True, **p) for p in (DEVICE, QUICK))
    for agent, other in ((on_device, on_host), (on_host, on_device)):
        agent.train(blocks(1)[0])
        with pytest.raises(CheckpointError, match="replay_device"):
            other.restore(*through_storage(*agent.state()))
    larger = make_agent(SPEC, learner=True, **{**DEVICE, "replay_capacity": 8})
    with pytest.raises(ValueError, match="capacity"):
        larger.restore(*through_storage(*on_device.state()))
