"""The images of a game: a table has the cell that each pixel belongs to.

The cells are those of the well, row by row, then the 4 x 4 of the next piece's box, then two constant
ones: the background, and the frame around both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exarl.science.tetris.pieces import COLUMNS, ROWS

WELL, BOX = ROWS * COLUMNS, 16
NOTHING, FRAME = WELL + BOX, WELL + BOX + 1
KINDS = 5
"""Kinds of cells: background, settled, falling, next, frame."""


class Screen(NamedTuple):
    """The table of an image, and the colour of each kind of cell."""

    cells: np.ndarray  # [H, W]
    palette: np.ndarray  # [KINDS, channels]


def large() -> Screen:
    """240 x 256 in colour, the size of the console's picture: blocks of 8 x 8 in the same places."""
    colours = [[0, 0, 0], [80, 120, 240], [240, 200, 60], [240, 200, 60], [110, 110, 110]]
    return Screen(_table(240, 256, 8, (40, 96), (112, 192)), np.array(colours, np.uint8))


def small() -> Screen:
    """84 x 84 in grey, with blocks of 4 x 4."""
    shades = [[0], [110], [255], [200], [60]]
    return Screen(_table(84, 84, 4, (2, 4), (34, 56)), np.array(shades, np.uint8))


def _table(
    height: int, width: int, block: int, well: tuple[int, int], box: tuple[int, int]
) -> np.ndarray:
    """The table of an image with well and box at these corners; blocks have a dark edge."""
    table = np.full((height, width), NOTHING, np.intp)
    first = 0
    for (top, left), (rows, columns) in ((well, (ROWS, COLUMNS)), (box, (4, 4))):
        high, wide = rows * block, columns * block
        table[top - 2 : top + high + 2, left - 2 : left + wide + 2] = FRAME
        cells = first + np.arange(rows * columns).reshape(rows, columns)
        tile = np.zeros((block, block), bool)
        tile[:-1, :-1] = True
        drawn = np.where(np.tile(tile, (rows, columns)), np.kron(cells, tile | True), NOTHING)
        table[top : top + high, left : left + wide] = drawn
        first += rows * columns
    return table
