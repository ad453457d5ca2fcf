"""Ranges and choices: what is typed, what is drawn."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from exarl.config import Parameter, check
from exarl.errors import ConfigError
from exarl.sweep.space import Choices, Range, grid, is_swept, parse, random_point, words


def parameter(kind: Any, name: str = "p") -> Parameter:
    return Parameter(name, kind, dataclasses.MISSING)


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("1e-4:1e-2:log", float, Range(1e-4, 1e-2, log=True)),
        ("0:1", float, Range(0, 1)),
        ("0:1:0.25", float, Range(0, 1, step=0.25)),
        ("8:64", int, Range(8, 64, whole=True)),
        ("8:64:8", int | None, Range(8, 64, step=8, whole=True)),
        ("8:64:log:int", Any, Range(8, 64, log=True, whole=True)),
        ("-1:-0.5", float, Range(-1, -0.5)),
        ("0.9,0.99", float, Choices((0.9, 0.99))),
        ("relu,tanh", str, Choices(("relu", "tanh"))),
        ("true,false", bool, Choices((True, False))),
        ("[64,64],[32]", list[int], Choices(("[64,64]", "[32]"))),
        ("PPO-v0", str, None),
        ("0.5", float, None),
        ("64,64", list[int], None),  # one list
        ("[64,64]", list[int], None),
        ("1:30", str, None),
        ("python sim.py a,b", str, None),
        ("tcp://node1:5555", str, None),
    ],
)
def test_what_a_word_means(text: str, kind: Any, found: Any) -> None:
    assert is_swept(text, parameter(kind)) is (found is not None)
    if found is not None:
        assert parse(text, parameter(kind)) == found


@pytest.mark.parametrize(
    ("text", "kind", "words_"),
    [
        ("1:0", float, "lower end comes first"),
        ("0:1:log", float, "must begin above 0"),
        ("1:2:log:0.5", float, "not both"),
        ("0:1:2", float, "does not fit"),
        ("0.5:2", int, "whole ends"),
        ("1:2:lag", float, "ends in 'lag'"),
        ("1,1", float, "twice"),
        ("1,,2", float, "neither"),
    ],
)
def test_a_bad_range_is_one_sentence(text: str, kind: Any, words_: str) -> None:
    with pytest.raises(ConfigError, match=words_):
        parse(text, parameter(kind))


RANGES = [
    Range(1e-5, 1e-1, log=True),
    Range(-3.0, 2.0),
    Range(0, 1, step=0.125),
    Range(3, 17, whole=True),
    Range(8, 64, step=8, whole=True),
    Range(1, 1000, log=True, whole=True),
]


@pytest.mark.parametrize("dimension", RANGES)
def test_places_and_values_belong_together(dimension: Range) -> None:
    values = [dimension.at(place) for place in np.linspace(0, 1, 501, endpoint=False)]
    assert all(dimension.low <= value <= dimension.high for value in values)
    assert values == sorted(values)
    assert all(isinstance(value, int) for value in values) is dimension.whole
    for value in values:
        assert dimension.at(dimension.place(value)) == pytest.approx(value, rel=1e-9)
    if dimension.count() is not None and not dimension.log:
        assert len(set(values)) == dimension.count()
        shares = np.unique(values, return_counts=True)[1]
        assert shares.max() - shares.min() <= 1  # all as often


def test_ends_can_be_drawn() -> None:
    whole = Range(1, 1000, log=True, whole=True)
    assert (whole.at(0.0), whole.at(1 - 1e-9)) == (1, 1000)
    assert Range(8, 64, whole=True).spread(5) == list(range(8, 65))
    assert Range(1, 100, log=True).spread(3) == pytest.approx([1, 10, 100])


def test_a_random_setting_depends_on_its_number_alone() -> None:
    space = {"a": RANGES[0], "b": Choices(("x", "y")), "c": RANGES[3]}
    forth = [random_point(space, 7, n) for n in range(20)]
    back = [random_point(space, 7, n) for n in reversed(range(20))]
    assert forth == back[::-1]
    assert forth != [random_point(space, 8, n) for n in range(20)]
    assert len({point["a"] for point in forth}) == 20


def test_a_grid_is_every_combination() -> None:
    found = grid({"a": Choices((1, 2)), "b": Range(0, 1, step=0.5)}, points=9)
    assert [tuple(point.values()) for point in found] == [
        (1, 0.0), (1, 0.5), (1, 1.0), (2, 0.0), (2, 0.5), (2, 1.0)
    ]  # fmt: skip


def test_words_say_every_digit() -> None:
    point = {"lr": 0.1 + 0.2, "n": 3, "flag": True, "hidden": "[64,64]", "low": -1e-7}
    typed = dict(word.removeprefix("--").split("=", 1) for word in words(point))
    assert float(typed["lr"]) == 0.1 + 0.2
    assert float(typed["low"]) == -1e-7
    assert check(parameter(list[int]), typed["hidden"], "here", text=True) == [64, 64]
    assert check(parameter(bool), typed["flag"], "here", text=True) is True
    assert check(parameter(int), typed["n"], "here", text=True) == 3
