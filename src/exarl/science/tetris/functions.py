"""ExaTetris-v0 as pure functions; the rows of the well are bits of integers."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces

from exarl.envs.functional import Functions, integers, split, when
from exarl.science.tetris import pieces, screen
from exarl.science.tetris.pieces import COLUMNS, EMPTY, FULL, HIDDEN, ROWS, WALL
from exarl.types import Action, Array, Namespace, Rng

TURN = np.array([0, 1, -1, 0, 0, 0])
STEP = np.array([0, 0, 0, 1, -1, 0])
DOWN = 5
"""The actions: nothing, turn clockwise (A), turn back (B), right, left, down."""
SCORES = np.array([0, 40, 100, 300, 1200])
"""Points for 0 .. 4 lines at once."""
REWARDS = ("score", "lines", "score_height", "lines_height", "pieces")
OBSERVATIONS = ("board", "small", "image")
Place: TypeAlias = "Array | int"
"""An orientation, a row or a column."""


class Game(NamedTuple):
    """A game of Tetris."""

    well: Array  # [DEPTH] rows of settled blocks, see ``pieces``
    piece: Array  # 0 .. 6, the one that falls
    turned: Array  # 0 .. 3 quarters clockwise
    down: Array  # place of its box
    across: Array
    following: Array  # the next piece
    clock: Array  # steps since it last fell by itself
    pieces: Array  # that have settled
    score: Array
    lines: Array
    height: Array  # of the settled blocks
    over: Array


class Tetris(Functions):
    """The game; the parameters are those of ``ExaTetris``."""

    def __init__(
        self,
        observation: str = "board",
        reward: str = "pieces",
        gravity: int = 1,
        drop: str = "hard",
        xp: Namespace = np,
    ) -> None:
        super().__init__(xp)
        if observation not in OBSERVATIONS:
            raise ValueError(f"observation must be one of {', '.join(OBSERVATIONS)}")
        if reward not in REWARDS:
            raise ValueError(f"reward must be one of {', '.join(REWARDS)}, not '{reward}'")
        if drop not in ("hard", "soft"):
            raise ValueError(f"drop must be hard or soft, not '{drop}'")
        if gravity < 1:
            raise ValueError(f"gravity must be at least 1, not {gravity}")
        self.gravity, self.rewarded, self.seen = int(gravity), reward, observation
        self.hard = drop == "hard"
        self.lying, self.cells = xp.asarray(pieces.lying()), xp.asarray(pieces.unpacked())
        self.boxes = xp.asarray(_boxes())
        self.turns, self.steps, self.scores = (xp.asarray(t) for t in (TURN, STEP, SCORES))
        self.falls = xp.arange(pieces.DOWN)
        self.order = xp.arange(HIDDEN + ROWS)
        views = {"small": screen.small(), "image": screen.large()}
        shape: tuple[int, ...] = (ROWS, COLUMNS, 3)
        if observation in views:
            self.screen = screen.Screen(*(xp.asarray(part) for part in views[observation]))
            shape = (*self.screen.cells.shape, self.screen.palette.shape[1])
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(6)

    def initial(self, rng: Rng, params: None = None) -> Game:
        xp = self.xp
        first, second = split(rng, 2)
        turned, clock, settled, score, lines, height = xp.zeros(6, int)
        return Game(
            xp.asarray(pieces.empty_well()),
            integers(first, 7),
            turned,
            pieces.SPAWN_DOWN + clock,
            pieces.SPAWN_ACROSS + clock,
            integers(second, 7),
            clock,
            settled,
            score,
            lines,
            height,
            lines > 0,
        )

    def transition(self, state: Game, action: Action, rng: Rng, params: None = None) -> Game:
        """Turn or shift the piece if there is room, let it fall, and settle it if it cannot fall."""
        turned, across = state.turned + self.turns[action] & 3, state.across + self.steps[action]
        free = self.free(state.well, state.piece, turned, state.down, across)
        turned = state.turned + free * (turned - state.turned)
        across = state.across + free * (across - state.across)

        room = self.room(state.well, state.piece, turned, state.down, across)
        clock = state.clock + 1
        due, pressed = clock >= self.gravity, action == DOWN
        wanted = 1 * due + (ROWS if self.hard else 1) * pressed  # rows
        moved = state._replace(
            turned=turned,
            across=across,
            down=state.down + self.xp.minimum(room, wanted),
            clock=clock * ~due,
        )
        # A piece settles when it should fall and cannot, and at once after a hard drop.
        lands = (wanted > 0) & ((room == 0) | (pressed & self.hard))
        return when(self.xp, lands, lambda game: self.settled(game, rng), moved)

    def settled(self, game: Game, rng: Rng) -> Game:
        """The game after its piece has settled: full lines are removed, the next piece appears."""
        xp = self.xp
        well = game.well | self.lying[game.piece, game.turned, game.down, game.across]
        above = well[: HIDDEN + ROWS]
        full = above == FULL
        # Full rows, now empty, move to the top; the others keep their order, so those above sink.
        above = xp.where(full, EMPTY, above)[xp.argsort(self.order - 100 * full)]
        count, filled = full.sum(), above != EMPTY
        well = xp.concatenate([above, well[HIDDEN + ROWS :]])
        down, across, zero = pieces.SPAWN_DOWN, pieces.SPAWN_ACROSS, 0 * game.clock
        return Game(
            well,
            game.following,
            zero,
            zero + down,
            zero + across,
            integers(rng, 7),
            zero,
            game.pieces + 1,
            game.score + self.scores[count],
            game.lines + count,
            xp.where(filled, HIDDEN + ROWS - self.order, 0).max(),
            ~self.free(well, game.following, 0, down, across),
        )

    def free(self, well: Array, piece: Array, turned: Place, down: Place, across: Place) -> Array:
        """Whether a piece has room at this place."""
        return ~(well & self.lying[piece, turned, down, across]).any()

    def room(self, well: Array, piece: Array, turned: Array, down: Array, across: Array) -> Array:
        """The number of rows that a piece can fall."""
        blocked = (well & self.lying[piece, turned, :, across]).any(1) & (self.falls > down)
        return blocked.argmax() - down - 1

    def reward(
        self, state: Game, action: Action, next_state: Game, rng: Rng, params: None = None
    ) -> Array:
        """See ``ExaTetris`` for the kinds of reward."""
        lines, score = next_state.lines - state.lines, next_state.score - state.score
        if self.rewarded == "pieces":
            return next_state.pieces - state.pieces + 10 * lines
        gained = score if self.rewarded.startswith("score") else lines
        if self.rewarded.endswith("height"):
            gained = gained - self.xp.maximum(next_state.height - state.height, 0)
        return gained

    def terminal(self, state: Game, rng: Rng, params: None = None) -> Array:
        """Whether the next piece had no room."""
        return state.over

    def observation(self, state: Game, rng: Rng, params: None = None) -> Array:
        """An image, see ``ExaTetris``."""
        if self.seen == "board":
            return self.planes(state)
        return self.image(state, self.screen)

    def planes(self, state: Game) -> Array:
        """[20, 10, 3]: settled blocks, the falling piece, and the next one where it will appear."""
        spawned = self.lying[state.following, 0, pieces.SPAWN_DOWN, pieces.SPAWN_ACROSS]
        rows = self.xp.stack([state.well, self.falling(state), spawned], 1)[HIDDEN : HIDDEN + ROWS]
        return self.cells[rows >> WALL & 2**COLUMNS - 1].swapaxes(1, 2) * np.uint8(255)

    def image(self, state: Game, view: screen.Screen) -> Array:
        """The game on a screen, [H, W, channels]."""
        xp = self.xp
        rows = xp.stack([state.well, self.falling(state)])[:, HIDDEN : HIDDEN + ROWS]
        settled, falling = self.cells[rows >> WALL & 2**COLUMNS - 1].reshape(2, -1)
        kinds = [settled + 2 * falling, 3 * self.boxes[state.following], xp.asarray([0, 4])]
        return xp.take(view.palette[xp.concatenate(kinds)], view.cells, axis=0)

    def falling(self, state: Game) -> Array:
        """[DEPTH]: the rows of the falling piece."""
        return self.lying[state.piece, state.turned, state.down, state.across]

    def state_info(self, state: Game, params: None = None) -> dict[str, object]:
        """Score, lines and height of the blocks."""
        return {"score": state.score, "lines": state.lines, "height": state.height}

    def picture(self, state: Game) -> np.ndarray:
        """The game as an image of the console's size."""
        return np.asarray(self.image(state, screen.large()))


def _boxes() -> np.ndarray:
    """[7, 16]: the cells of each piece in its box."""
    return np.array(pieces.bits()[:, 0, :, None] >> np.arange(4) & 1, np.uint8).reshape(7, 16)
