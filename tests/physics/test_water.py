"""Water clusters: TIP4P, rigid molecules, relaxation, the search, and what the environment promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl.envs.registration import make_env
from exarl.errors import ConfigError
from exarl.science.water_cluster import tip4p
from exarl.science.water_cluster.functions import WaterCluster, Waters
from exarl.science.water_cluster.quench import minimise
from exarl.science.water_cluster.rigid import (
    atoms_of,
    fitted,
    forms_of,
    multiply,
    pack,
    rigid,
    turn,
    unpack,
)
from exarl.science.water_cluster.search import basin_hopping
from exarl.science.water_cluster.xyz import read_clusters, write_cluster

BODY = tip4p.monomer()
FORMS = forms_of(np, BODY)
SEEDS = (0, 1, 2)


def ball(n: int, seed: int) -> np.ndarray:
    """Coordinates of molecules thrown together."""
    return np.asarray(WaterCluster(n).ball(np.random.default_rng(seed)))


def energies(n: int) -> Any:
    return rigid(np, tip4p.tip4p(np, n), FORMS)


def energy(coordinates: np.ndarray) -> float:
    return float(energies(len(coordinates) // 7)(coordinates)[0].sum())


def pair_energy(one: np.ndarray, other: np.ndarray) -> float:
    """Two molecules [3, 3], straight from the definition of TIP4P."""

    def charges(atoms: np.ndarray) -> list[tuple[float, np.ndarray]]:
        oxygen, first, second = atoms
        bisector = (first + second) / 2 - oxygen
        dummy = oxygen + 0.15 * bisector / np.linalg.norm(bisector)
        return [(0.52, first), (0.52, second), (-1.04, dummy)]

    distance = np.linalg.norm(one[0] - other[0])
    bulk = 4.184 * (600_000 / distance**12 - 610 / distance**6)
    pairs = [
        1389.354848 * p * q / np.linalg.norm(x - y)
        for p, x in charges(one)
        for q, y in charges(other)
    ]
    return float(bulk + sum(pairs))


def test_the_monomer_has_tip4ps_shape() -> None:
    oxygen, first, second = BODY
    assert np.linalg.norm(first - oxygen) == pytest.approx(0.9572)
    assert np.linalg.norm(second - oxygen) == pytest.approx(0.9572)
    assert np.degrees(np.arccos(first @ second / 0.9572**2)) == pytest.approx(104.52)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_energy_is_the_sum_over_pairs_and_each_molecule_has_half_of_its_own(seed: int) -> None:
    coordinates = ball(4, seed)
    atoms = atoms_of(coordinates, FORMS)
    molecular, _ = energies(4)(coordinates)
    expected = [
        sum(pair_energy(atoms[i], atoms[j]) for j in range(4) if j != i) / 2 for i in range(4)
    ]
    np.testing.assert_allclose(molecular, expected, rtol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gradient_is_that_of_finite_differences(seed: int) -> None:
    coordinates = ball(4, seed)
    _, gradient = energies(4)(coordinates)
    step = 1e-5
    numeric = [
        (energy(coordinates + step * axis) - energy(coordinates - step * axis)) / (2 * step)
        for axis in np.eye(len(coordinates))
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_forces_add_up_to_nothing_and_so_do_torques(seed: int) -> None:
    atoms = atoms_of(ball(5, seed), FORMS)
    _, gradient = tip4p.tip4p(np, 5)(atoms)
    np.testing.assert_allclose(gradient.sum((0, 1)), 0, atol=1e-9)
    np.testing.assert_allclose(np.cross(atoms, gradient).sum((0, 1)), 0, atol=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_changes_when_all_is_moved_turned_or_renamed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    places, quaternions = unpack(ball(5, seed))
    before = energies(5)(pack(np, places, quaternions))[0]
    whole = rng.normal(size=4)
    whole /= np.linalg.norm(whole)
    vectors = np.pad(places, ((0, 0), (1, 0)))
    inverse = whole * [1, -1, -1, -1]
    turned = multiply(np, multiply(np, whole, vectors), inverse)[:, 1:] + rng.normal(size=3)
    after = energies(5)(pack(np, turned, multiply(np, whole, quaternions)))[0]
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-9)
    order = rng.permutation(5)
    renamed = energies(5)(pack(np, places[order], quaternions[order] * 3))[0]
    np.testing.assert_allclose(renamed, before[order], rtol=0, atol=1e-9)
    half_turn = turn(np, np.array([0.0, 0, 1]), np.pi)  # about the bisector: H and H change places
    swapped = energies(5)(pack(np, places, multiply(np, quaternions, half_turn[None])))[0]
    np.testing.assert_allclose(swapped, before, rtol=0, atol=1e-9)


def test_relaxing_never_climbs_and_ends_where_the_gradient_vanishes() -> None:
    for seed in range(5):
        function = energies(6)

        def total(x: np.ndarray, function: Any = function) -> tuple[Any, Any]:
            molecular, gradient = function(x)
            return molecular.sum(), gradient

        start = ball(6, seed)
        found = minimise(np, total, start)
        assert found.energy < total(start)[0]
        assert np.abs(found.gradient).max() <= 1e-3
        assert found.energy == pytest.approx(energy(found.x), abs=1e-9)
        assert found.evaluations < 600


def test_relaxing_solves_a_quadratic_problem() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    matrix, goal = root @ root.T + np.eye(12), rng.normal(size=12)

    def bowl(x: np.ndarray) -> tuple[Any, Any]:
        return (x - goal) @ matrix @ (x - goal) / 2, matrix @ (x - goal)

    found = minimise(np, bowl, np.zeros(12), tolerance=1e-8)
    np.testing.assert_allclose(found.x, goal, atol=1e-7)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_the_search_finds_the_lowest_known_minimum(n: int) -> None:
    functions = WaterCluster(n)
    found = basin_hopping(functions, np.random.default_rng(n), 400)
    assert found.cluster.energy == pytest.approx(tip4p.MINIMA[n], abs=1e-3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("n", [7, 8, 9, 10])
def test_the_search_finds_the_larger_minima_too(n: int) -> None:
    found = basin_hopping(WaterCluster(n), np.random.default_rng(n), 4000)
    assert found.cluster.energy == pytest.approx(tip4p.MINIMA[n], abs=1e-3)


def test_published_distances() -> None:
    """O-O of the dimer, and of the four equal bonds of the tetramer's ring."""
    for n, distance, bonds in ((2, 2.7478, 1), (4, 2.7228, 4)):
        found = basin_hopping(WaterCluster(n), np.random.default_rng(0), 100).cluster
        places, _ = unpack(found.coordinates)
        apart = np.sort([np.linalg.norm(p - q) for i, p in enumerate(places) for q in places[:i]])
        np.testing.assert_allclose(apart[:bonds], distance, atol=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_rewards_add_up_to_the_energy_gained(seed: int) -> None:
    env, limit = make_env("ExaWaterClusterDiscrete-v0", {"n_waters": 5, "target": -1000.0})
    assert limit == 50
    _, info = env.reset(seed=seed)
    first, lowest, total = info["energy"], info["energy"], 0.0
    env.action_space.seed(seed)
    for _ in range(12):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        total += reward
        lowest = min(lowest, info["energy"])
        assert not (terminated or truncated)
    assert 10 * total == pytest.approx(first - info["energy"], abs=1e-9)
    assert info["lowest"] == lowest


def test_an_episode_ends_at_the_target_and_when_a_molecule_is_lost() -> None:
    functions = WaterCluster(4)
    found = basin_hopping(functions, np.random.default_rng(0), 100).cluster
    assert functions.terminal(found, None)
    assert functions.observation(found, None)[0] == pytest.approx(0, abs=1e-3)
    assert not WaterCluster(4, target=-200.0).terminal(found, None)
    assert not WaterCluster(4, target=found.energy - 0.1).terminal(found, None)
    places, quaternions = unpack(found.coordinates)
    lost = functions.measured(pack(np, places + 7 * np.eye(4)[:, 3:] * places, quaternions))
    assert WaterCluster(4, target=-200.0).terminal(lost, None)


def test_the_first_action_does_nothing_and_others_move_only_the_molecule_they_name() -> None:
    functions = WaterCluster(6, target=-1000.0, shake=0.0)
    state = functions.initial(np.random.default_rng(3))
    after = functions.transition(state, 0, np.random.default_rng(0))
    assert after.energy == pytest.approx(state.energy, abs=1e-4)
    order = np.argsort(-state.molecular)
    for action in range(1, 150):
        moved = functions.moved(state, action, np.random.default_rng(action))
        changed = [
            np.abs(a - b).max(1) > 1e-9
            for a, b in zip(unpack(moved), unpack(state.coordinates), strict=True)
        ]
        assert set(np.flatnonzero(changed[0] | changed[1])) <= {order[action // 25]}
        assert (changed[1].any(), changed[0].any()) == (action // 5 % 5 > 0, action % 5 > 0)


def test_a_move_into_nothing_sound_leaves_the_cluster_as_it_was() -> None:
    functions = WaterCluster(4, target=-1000.0)
    state = functions.initial(np.random.default_rng(0))
    for depth in (np.nan, -1e6):  # not a number, or charges fallen into each other
        functions.energies = lambda x, depth=depth: (np.full(4, depth), np.zeros(28))
        after = functions.transition(state, 37, np.random.default_rng(0))
        assert functions.reward(state, 37, after, None) == 0
        np.testing.assert_array_equal(after.coordinates, state.coordinates)
        assert after.lowest == state.lowest


def test_the_predecessors_moves() -> None:
    functions = WaterCluster(6, moves="exarl")
    state = functions.initial(np.random.default_rng(0))
    moved, _ = unpack(functions.moved(state, 25 * 2 + 7, None))
    chosen = np.argsort(-state.molecular)[2]
    places, _ = unpack(state.coordinates)
    np.testing.assert_allclose((moved - places)[chosen], 0.60)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_observation_does_not_depend_on_names_or_directions(seed: int) -> None:
    functions = WaterCluster(5)
    state = functions.initial(np.random.default_rng(seed))
    order = np.random.default_rng(seed).permutation(5)
    places, quaternions = unpack(state.coordinates)
    turned = turn(np, np.array([0.6, 0, 0.8]), 1.0)
    vectors = multiply(
        np, multiply(np, turned, np.pad(places, ((0, 0), (1, 0)))), turned * [1, -1, -1, -1]
    )
    other = pack(np, vectors[order, 1:], multiply(np, turned, quaternions)[order])
    seen = functions.observation(functions.measured(other), None)
    np.testing.assert_allclose(seen, functions.observation(state, None), atol=1e-5)


def test_clusters_come_from_and_go_to_files(tmp_path: Path) -> None:
    path = tmp_path / "cluster.xyz"
    atoms = atoms_of(ball(3, 0), FORMS)
    write_cluster(path, atoms, "three")
    (coordinates,) = read_clusters(str(path), 3, BODY)
    np.testing.assert_allclose(atoms_of(coordinates, FORMS), atoms, atol=1e-7)
    path.write_text(path.read_text() * 2)
    assert read_clusters(str(path), 3, BODY).shape == (2, 21)
    env, _ = make_env(
        "ExaWaterClusterDiscrete-v0", {"n_waters": 3, "start": str(path), "tell_atoms": True}
    )
    _, info = env.reset(seed=0)
    assert info["atoms"].shape == (3, 3, 3)
    assert info["energy"] == pytest.approx(
        WaterCluster(3).relaxed(ball(3, 0), WaterCluster(3).measured(ball(3, 0))).energy, abs=1e-5
    )


def test_a_bent_molecule_becomes_rigid_where_it_is() -> None:
    atoms = atoms_of(ball(3, 1), FORMS)
    bent = atoms + np.random.default_rng(0).normal(size=atoms.shape) * [[[0.0], [0.02], [0.02]]]
    again = atoms_of(fitted(bent, BODY), FORMS)
    np.testing.assert_allclose(again, atoms, atol=0.08)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n_waters": 1}, "n_waters must be at least 2"),
        ({"moves": "wild"}, "moves must be one of symmetric, exarl"),
        ({"potential": "no_such_module:f"}, "potential must be tip4p or module:function"),
        ({"potential": "numpy"}, "potential must be tip4p or module:function"),
        ({"start": "nowhere.xyz"}, "cannot read the clusters of nowhere.xyz"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_env("ExaWaterClusterDiscrete-v0", given)


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.xyz"
    for text, words in (
        ("", "no cluster"),
        ("3\n\nO 0 0 0\nH 0 0 1\n", "must contain clusters"),
        ("x", "no xyz"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=words):
            read_clusters(str(path), 1, BODY)


def test_a_potential_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_water.py").write_text(
        "from exarl.science.water_cluster.tip4p import tip4p\n"
        "def doubled(xp, n):\n"
        "    inner = tip4p(xp, n)\n"
        "    return lambda atoms: tuple(2 * part for part in inner(atoms))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    functions = WaterCluster(2, potential="my_water:doubled")
    assert functions.target is None
    state = functions.initial(np.random.default_rng(0))
    assert state.energy == pytest.approx(2 * tip4p.MINIMA[2], abs=1e-3)


def test_numpy_and_jax_agree() -> None:
    """From the same states and actions, compiled and mapped; the shift sideways is random."""
    import jax
    import jax.numpy as jnp

    ours = WaterCluster(4, target=-1000.0, shake=0.0)
    rng = np.random.default_rng(0)
    states = [ours.initial(rng) for _ in range(6)]
    actions = [a for a in rng.integers(0, 100, 40).tolist() if a % 5 != 3][:6]
    after = [ours.transition(s, a, rng) for s, a in zip(states, actions, strict=True)]
    with jax.enable_x64():
        theirs = WaterCluster(4, target=-1000.0, shake=0.0, xp=jnp)

        def step(state: Waters, action: Any, key: Any) -> tuple[Any, ...]:
            following = theirs.transition(state, action, key)
            seen, ended = theirs.observation(following, key), theirs.terminal(following, key)
            return following.energy, theirs.reward(state, action, following, key), seen, ended

        stacked = Waters(*(jnp.asarray(np.stack(field)) for field in zip(*states, strict=True)))
        keys = jax.random.split(jax.random.key(0), len(states))
        energies, rewards, seen, ended = jax.jit(jax.vmap(step))(stacked, np.array(actions), keys)
    np.testing.assert_allclose(energies, [a.energy for a in after], atol=1e-4)
    gained = [ours.reward(s, 0, a, None) for s, a in zip(states, after, strict=True)]
    np.testing.assert_allclose(rewards, gained, atol=1e-4)
    np.testing.assert_allclose(seen, [ours.observation(a, None) for a in after], atol=1e-3)
    assert ended.tolist() == [bool(ours.terminal(a, None)) for a in after]


@pytest.mark.slow
def test_in_single_precision_it_relaxes_to_the_same_minima() -> None:
    import jax
    import jax.numpy as jnp

    theirs = WaterCluster(4, xp=jnp)
    begun = jax.jit(jax.vmap(theirs.initial))(jax.random.split(jax.random.key(1), 8))
    exact = WaterCluster(4)
    for coordinates, found in zip(
        np.asarray(begun.coordinates, float), np.asarray(begun.energy), strict=True
    ):
        relaxed = exact.relaxed(coordinates, exact.measured(coordinates))
        assert found == pytest.approx(relaxed.energy, abs=0.02)


def test_its_picture() -> None:
    env, _ = make_env("ExaWaterClusterDiscrete-v0", {"n_waters": 3}, render_mode="rgb_array")
    env.reset(seed=0)
    image = env.render()
    assert image.dtype == np.uint8
    assert image.shape == (480, 480, 3)
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 10


@pytest.mark.slow
def test_a_search_that_gets_stuck_in_single_precision_changes_nothing() -> None:
    """Two of these ten thousand moves once ended on the wall between molecules, far above 0."""
    import jax

    from exarl.envs.device import DeviceEnvs
    from exarl.run.build import build_episode
    from exarl.run.configure import configure

    chosen = {"env": "ExaWaterClusterDiscrete-v0", "agent": "DQN-v0"}
    env, adapter, _ = build_episode(configure(overrides=chosen))
    envs, count = DeviceEnvs.of(env, adapter), 512
    world = jax.jit(lambda key: envs.begin(key, count))(jax.random.key(0))
    step = jax.jit(envs.step)
    for number in range(20):
        key = jax.random.key(99 + number)
        actions = jax.random.randint(key, (count,), 0, adapter.spec.n_actions)
        world, outcome = step(world, actions, jax.random.key(number))
        assert np.abs(outcome.reward).max() < 30
        assert np.asarray(world.state.energy).max() < 0
