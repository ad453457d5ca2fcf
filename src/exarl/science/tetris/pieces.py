"""The pieces of Tetris as rows of bits, and their possible places.

A row of the well has 16 bits: three of wall, ten columns (the leftmost in bit 3), three of wall. The
well has two hidden rows above its twenty and four rows of floor below, so that a piece is out of
bounds where its bits overlap with others, and no place needs a special rule.
"""

from __future__ import annotations

import numpy as np

ROWS, COLUMNS, HIDDEN, FLOOR, WALL = 20, 10, 2, 4, 3
DEPTH = HIDDEN + ROWS + FLOOR
ACROSS = COLUMNS + WALL  # places of a piece's box of 4 x 4, from the left
DOWN = HIDDEN + ROWS + 1  # from the top
FULL = 2 ** (COLUMNS + 2 * WALL) - 1
EMPTY = FULL - (2**COLUMNS - 1 << WALL)
SPAWN_ACROSS, SPAWN_DOWN = 6, 1

NAMES = "TJZOSLI"
SHAPES = {
    "T": (
        ".... ###. .#.. ....",
        ".#.. ##.. .#.. ....",
        ".#.. ###. .... ....",
        ".#.. .##. .#.. ....",
    ),
    "J": (
        ".... ###. ..#. ....",
        ".#.. .#.. ##.. ....",
        "#... ###. .... ....",
        ".##. .#.. .#.. ....",
    ),
    "Z": (".... ##.. .##. ....", "..#. .##. .#.. ....") * 2,
    "O": (".... .##. .##. ....",) * 4,
    "S": (".... .##. ##.. ....", ".#.. .##. ..#. ....") * 2,
    "L": (
        ".... ###. #... ....",
        "##.. .#.. .#.. ....",
        "..#. ###. .... ....",
        ".#.. .#.. .##. ....",
    ),
    "I": (".... #### .... ....", "..#. ..#. ..#. ..#.") * 2,
}
"""The four orientations of each piece, clockwise, as the rows of its box. The first has its flat side
up."""


def bits() -> np.ndarray:
    """[7, 4, 4]: each orientation's rows as bits 0 .. 3, the leftmost column in bit 0."""
    rows = [[text.split() for text in SHAPES[name]] for name in NAMES]
    cells = np.array([[[list(row) for row in turn] for turn in piece] for piece in rows]) == "#"
    return np.asarray(cells @ (1 << np.arange(4)), np.int32)


def lying() -> np.ndarray:
    """[7, 4, DOWN, ACROSS, DEPTH]: the bits that a piece covers in each row of the well, by place."""
    table = np.zeros((len(NAMES), 4, DOWN, ACROSS, DEPTH), np.int32)
    boxes = bits()
    for down in range(DOWN):
        for across in range(ACROSS):
            table[:, :, down, across, down : down + 4] = boxes[..., : DEPTH - down] << across
    return table


def empty_well() -> np.ndarray:
    """[DEPTH]: only walls and floor."""
    return np.array([EMPTY] * (HIDDEN + ROWS) + [FULL] * FLOOR, np.int32)


def unpacked() -> np.ndarray:
    """[2**COLUMNS, COLUMNS]: the cells, 0 or 1, of every possible row without its walls."""
    numbers = np.arange(2**COLUMNS)[:, None]
    return np.asarray(numbers >> np.arange(COLUMNS) & 1, np.uint8)
