"""The BOOSTR recording: a csv of 45 columns, of which six are used."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from exarl.science.booster.kernel import VARIABLES
from exarl.types import Array

SETTING = "B_VIMIN"
ROWS = 250_000
"""The default number of rows to read, which is also that of the published models."""


class Recording(NamedTuple):
    """Samples of the machine under its own regulator.

    ``samples[0, t]`` is the B:VIMIN with which the regulator answered ``samples[1, t]``. The file
    has it one row later, since it records the value that was set in the previous cycle.
    """

    samples: Array  # [variables, rows]
    setting: Array  # [rows]


def read_recording(path: str, rows: int = ROWS) -> Recording:
    """The first ``rows`` rows of the csv at ``path``; ValueError when it is not a BOOSTR csv."""
    wanted = (*VARIABLES, SETTING)
    try:
        with Path(path).expanduser().open(encoding="utf-8", newline="") as file:
            names = next(csv.reader(file), [])
            missing = [name for name in wanted if name not in names]
            if missing:
                raise ValueError(f"{path} has no column {missing[0]}")
            columns = [names.index(name) for name in wanted]
            table = np.loadtxt(file, delimiter=",", usecols=columns, max_rows=rows + 1, ndmin=2)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no csv file") from error
    if len(table) < 3 or not np.isfinite(table).all():
        raise ValueError(f"{path} has too few rows, or rows without numbers")
    samples = np.stack([table[1:, 0], *table[:-1, 1:5].T])
    return Recording(samples, table[:-1, 5].copy())


def moves_of(recording: Recording, actions: int) -> np.ndarray:
    """One change of B:VIMIN per action, at even quantiles of the regulator's own changes."""
    sizes = np.abs(np.diff(recording.samples[0]))
    return symmetric(np.quantile(sizes, 2 * np.arange(actions // 2 + 1) / actions))


def symmetric(sizes: np.ndarray) -> np.ndarray:
    """``[0, a, b]`` -> ``[-b, -a, 0, a, b]``"""
    return np.concatenate([-sizes[:0:-1], [0.0], sizes[1:]])
