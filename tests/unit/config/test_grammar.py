"""One grammar for varied values, typed to ``exarl sweep`` or to ``--sweep`` of workflow fused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from exarl.config import Parameter
from exarl.config.grammar import Span, combinations, read_grid, read_values
from exarl.errors import ConfigError
from exarl.sweep.space import Range, parse


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1e-4:1e-2:log", Span(1e-4, 1e-2, log=True)),
        ("1e-4:1e-2:8:log", Span(1e-4, 1e-2, 8, log=True)),
        ("1e-4:1e-2:log:8", Span(1e-4, 1e-2, 8, log=True)),
        ("0:1:3:linear", Span(0, 1, 3)),
        ("8:64:8:int", Span(8, 64, 8, whole=True)),
        ("0.9,0.99", ["0.9", "0.99"]),
        ("[64,64], [32]", ["[64,64]", "[32]"]),
        ("tcp://host:1", ["tcp://host:1"]),
        ("", [""]),
    ],
)
def test_values_are_a_range_or_a_list(text: str, found: object) -> None:
    assert read_values(text, "p") == found


@pytest.mark.parametrize("ending", ["lag", "log:log", "log:linear", "1:2", "int:int", "nan", ""])
def test_an_ending_that_means_nothing_is_named(ending: str) -> None:
    with pytest.raises(ConfigError, match=rf"^p: '0:1:{ending}' ends in '.*', not in log"):
        read_values(f"0:1:{ending}", "p")


def test_a_grid_has_the_values_that_numpy_spaces() -> None:
    found = read_grid("lr=1e-4:1e-2:8:log; gamma = 0.9,0.99,0.9;clip=0.3:0.1:3:linear;one=2:2:2")
    assert found == {
        "lr": np.geomspace(1e-4, 1e-2, 8).tolist(),
        "gamma": [0.9, 0.99, 0.9],
        "clip": np.linspace(0.3, 0.1, 3).tolist(),
        "one": [2.0, 2.0],
    }
    assert read_grid("a=1:5:1;") == {"a": [1.0]}


@pytest.mark.parametrize(
    "text",
    ["gamma", "gamma=", "gamma=x", "gamma=1,", "gamma=0:1", "gamma=0:1:log", "gamma=0:1:0",
     "gamma=0:1:1.5", "gamma=0:1:3:log", "gamma=0:1:3:int", "gamma=a:b:3", "=;"],
)  # fmt: skip
def test_a_bad_grid_is_one_clear_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^sweep: .* is neither name=a,b,c nor") as refused:
        read_grid(text)
    assert "\n" not in str(refused.value)


def test_the_same_range_means_the_same_values_to_both() -> None:
    """Ends and scale; the number is a step of the one and a count of the other."""
    parameter = Parameter("lr", float, dataclasses.MISSING)
    searched = parse("1e-4:1e-2:log", parameter)
    assert isinstance(searched, Range)
    assert searched.spread(5) == read_grid("lr=1e-4:1e-2:5:log")["lr"]


def test_the_last_name_varies_fastest() -> None:
    found = combinations({"a": [1, 2], "b": [3, 4]})
    assert [tuple(row.values()) for row in found] == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert combinations({}) == [{}]
