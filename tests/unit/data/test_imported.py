"""A log of an instrument becomes episodes, or one line says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exarl.data.imported import import_csv
from exarl.errors import ConfigError

LOG = """run,T,p,valve,yield,fault
a,20,1.0,0,0.5,0
a,21,1.1,1,0.7,0
a,22,1.2,,,1
b,20,1.0,1,0.1,0
b,23,1.0,,,0
"""
SEEN = {"type": "Box", "dtype": "float32", "shape": [2], "low": [250.0, 0.0], "high": [400.0, 5.0]}
VALVE = {"type": "Discrete", "n": 2, "start": 0}
COLUMNS = "observation=T+273.15,p action=valve reward=yield*10 episode=run terminated=fault"


def imported(tmp_path: Path, columns: str = COLUMNS, text: str = LOG):  # type: ignore[no-untyped-def]
    (tmp_path / "log.csv").write_text(text)
    return import_csv(tmp_path / "log.csv", columns, SEEN, VALVE, "Plant-v0")


def test_lines_become_episodes_in_the_units_of_the_environment(tmp_path: Path) -> None:
    data = imported(tmp_path)
    assert data.lengths == (2, 1)
    first, second = data
    np.testing.assert_allclose(first.observations[:, 0], [293.15, 294.15, 295.15])
    np.testing.assert_array_equal(first.actions, [0, 1])
    np.testing.assert_allclose(first.rewards, [5, 7])
    assert first.terminations.tolist() == [False, True] and not first.truncations.any()
    assert second.truncations.tolist() == [True] and not second.terminations.any()


def test_without_a_column_of_episodes_they_end_where_a_line_says_so(tmp_path: Path) -> None:
    assert imported(tmp_path, COLUMNS.replace(" episode=run", "")).lengths == (2, 1)


@pytest.mark.parametrize(
    ("columns", "text", "told"),
    [
        ("action=valve reward=yield", LOG, "observation=... is missing"),
        (
            COLUMNS.replace("T+273.15,p", "p"),
            LOG,
            "observation has 1 columns, the environment has 2",
        ),
        (
            COLUMNS.replace("T+273.15", "T"),
            LOG,
            r"line 2: observation is 20, outside of \[250, 400\]",
        ),
        (COLUMNS.replace("valve", "valve*3"), LOG, r"line 3: action is 3, outside of \[0, 1\]"),
        (COLUMNS, LOG.replace("a,21,1.1,1", "a,21,1.1,"), "line 3: action has no number"),
        (COLUMNS, LOG.replace("a,21", "a,hot"), "line 3: 'hot' in column T is no number"),
        (COLUMNS.replace("valve", "tap"), LOG, "has no column 'tap'"),
        (COLUMNS + " colour=red", LOG, "'colour' is none of"),
        (COLUMNS, LOG + "c,20,1.0,1,1,0\n", "line 7: an episode of one line has no step"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, columns: str, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        imported(tmp_path, columns, text)
    assert "\n" not in str(caught.value)


def test_all_that_is_wrong_is_told(tmp_path: Path) -> None:
    columns = COLUMNS.replace("T+273.15", "T").replace("valve", "valve*3")
    with pytest.raises(ConfigError, match=r"observation is 20.*Also.*action is 3"):
        imported(tmp_path, columns)
