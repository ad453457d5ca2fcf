"""ExaTetris-v0, the Gymnasium form."""

from __future__ import annotations

from functools import partial
from typing import Literal

from exarl.envs.functional import FunctionalEnv
from exarl.science.tetris.functions import Tetris


class ExaTetris(FunctionalEnv):
    """Tetris on a well of 20 x 10, with images as observations and the console's six actions.

    The actions: nothing, turn clockwise (A), turn back (B), right, left, down. ``observation``:
    "board" for [20, 10, 3] bytes (settled blocks, falling piece, next piece), "small" for a grey
    [84, 84, 1], "image" for [240, 256, 3], the console's picture. ``reward``: "pieces" for 1 per piece
    that settles and 10 per line; "score" or "lines" for the gain in these, with "_height" minus the
    rows by which the blocks grew. ``gravity``: steps in which the piece falls one row by itself.
    ``drop``: with "hard", down drops the piece to the bottom, where it settles; with "soft", it falls
    one row more.
    """

    def __init__(
        self,
        observation: Literal["board", "small", "image"] = "board",
        reward: Literal["pieces", "score", "lines", "score_height", "lines_height"] = "pieces",
        gravity: int = 1,
        drop: Literal["hard", "soft"] = "hard",
        render_mode: str | None = None,
    ) -> None:
        functions = partial(
            Tetris, observation=observation, reward=reward, gravity=gravity, drop=drop
        )
        super().__init__(functions, render_mode)
