"""Numbers in info: which are found, which are kept, and what is summed up of an episode."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
from support.learning import adapter_of
from support.telling import KeptTelling, Telling

from exarl.envs.episode import Episode
from exarl.envs.info import InfoSums, numbers_in


def test_parts_of_arrays_and_dictionaries_have_names_of_their_own() -> None:
    info = {
        "energy": np.float32(2.5),
        "done": True,
        "why": "text",
        "none": None,
        "few": np.array([[1, 2], [3, 4]]),
        "many": np.arange(17.0),
        "mixed": ["a", 1],
        "deep": {"x": 1, "y": {"z": (5,)}},
        "one": np.array(7),
    }
    assert dict(numbers_in(info)) == {
        "energy": 2.5,
        "done": 1,
        "few.0": 1,
        "few.1": 2,
        "few.2": 3,
        "few.3": 4,
        "many.mean": 8,
        "many.min": 0,
        "many.max": 16,
        "deep.x": 1,
        "deep.y.z.0": 5,
        "one": 7,
    }


def sums_of(names: tuple[str, ...], *infos: dict[str, Any]) -> dict[str, Any]:
    sums = InfoSums(names)
    sums.begin()
    for info in infos:
        sums.add(info)
    return dict(sums.of_episode)


def test_sum_count_last_min_and_max_of_what_is_named() -> None:
    infos = ({"e": 3, "f": 1.0}, {"f": 2.0}, {"e": -1.5}, {"e": 2, "x": {"e": 4}})
    assert sums_of(("e",), *infos) == {"e": [3.5, 3, 2, -1.5, 3]}
    assert sums_of(("e", "x"), *infos).keys() == {"e", "x.e"}
    assert sums_of(("x.e",), *infos) == {"x.e": [4, 1, 4, 4, 4]}
    assert sums_of(("x.e",), {"x.e": 4.0, "x.f": 3.0}) == {"x.e": [4, 1, 4, 4, 4]}, "as it travels"
    assert sums_of(("all",), *infos).keys() == {"e", "f", "x.e"}
    assert sums_of(("nothing",), *infos) == {}


def test_what_is_no_finite_number_does_not_count() -> None:
    infos = ({"e": math.nan}, {"e": 2.0}, {"e": math.inf}, {"e": None}, {"e": "3"}, {"e": 10**400})
    assert sums_of(("e",), *infos) == {"e": [2, 1, 2, 2, 2]}
    assert sums_of(("all",), {"action_mask": np.array([1, 0])}) == {}, "the agent reads that"
    sums = InfoSums(("all",))
    sums.add(None)
    assert not sums.of_episode


def test_too_many_numbers_are_left_out_with_one_warning(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        found = sums_of(("all",), *[{f"n{i}": i for i in range(100)}, {"x" * 65: 1}] * 3)
    assert len(found) == 64
    assert len(caplog.records) == 1 and "n64" in caplog.text


@pytest.mark.parametrize("make", [Telling, KeptTelling])
def test_a_restored_episode_goes_on_with_its_sums(make: Any) -> None:
    def episode() -> Episode:
        return Episode(make(), adapter_of(make()), None, 3, 0, log_info=("energy", "force"))

    whole = episode()
    whole.begin()
    for step in range(5):
        if step == 2:
            kept = whole.state()
        whole.step(1)
    first = whole.info["energy"][4] + 1
    assert whole.info == {
        "energy": [5 * first - 15, 5, first - 5, first - 5, first - 1],
        "force.0": [5, 5, 1, 1, 1],
        "force.1": [-15, 5, -5, -5, -1],
    }
    parts = episode()
    parts.restore(kept)
    for _ in range(3):
        parts.step(1)
    assert parts.info == whole.info
    ended = whole.info
    whole.begin()
    assert not whole.info and ended["energy"][1] == 5


def test_sums_that_are_none_are_refused() -> None:
    episode = Episode(KeptTelling(), adapter_of(KeptTelling()), None, 3, 0, log_info=("energy",))
    episode.begin()
    episode.step(0)
    with pytest.raises(ValueError, match="five numbers"):
        episode.restore({**episode.state(), "info/energy": np.zeros(3)})
