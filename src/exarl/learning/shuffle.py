"""Random permutations without sorting: each place's image is computed on its own.

A Feistel network in mixed radix (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
Places are the cells of a table. Rounds move each cell within its column by a random function of the
column, then within its row by one of the row, and so on. Each round can be undone, so no two cells
have the same image.
"""

from __future__ import annotations

import math

from exarl.types import Array, Namespace

ROUNDS = 8
"""Moves within columns and within rows, in turn. Four leave a pattern that a test finds, six do not."""


def table_for(count: int) -> tuple[int, int]:
    """Rows and columns of a table, not far from square, with at least ``count`` cells and few more."""
    most = math.isqrt(count)
    rows = min(range(most, most // 4, -1), key=lambda rows: -count % rows)
    return rows, -(-count // rows)


def scattered(xp: Namespace, places: Array, keys: Array, table: tuple[int, int]) -> Array:
    """Where the cells numbered ``places`` of a table go; all numbers uint32, ``keys`` [ROUNDS]."""
    rows, columns = (xp.uint32(side) for side in table)
    row, column = places // columns, places % columns
    for number in range(0, ROUNDS, 2):
        row = (row + hashed(xp, column, keys[number]) % rows) % rows
        column = (column + hashed(xp, row, keys[number + 1]) % columns) % columns
    return row * columns + column


def hashed(xp: Namespace, numbers: Array, key: Array) -> Array:
    """32 bits that depend on every bit of a number and of the key: the last steps of MurmurHash3."""
    numbers = numbers ^ key
    numbers = (numbers ^ (numbers >> xp.uint32(16))) * xp.uint32(0x85EBCA6B)
    numbers = (numbers ^ (numbers >> xp.uint32(13))) * xp.uint32(0xC2B2AE35)
    return numbers ^ (numbers >> xp.uint32(16))
