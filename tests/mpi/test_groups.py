"""Environments of several ranks: every member takes part in every call, and is kept and restored."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import (
    LIGHT,
    assert_same,
    go_on,
    learning_of,
    paused,
    reference,
    resume,
    run,
    summary_of,
    train,
)

RunBody = Callable[[str, int], list[dict[str, Any]]]

WORDS = (*LIGHT, "--total_steps", 1000, "--envs_per_actor", 2, "--checkpoint_interval", 0)
GROUP = ("--process_per_env", 3, "--procs", 4)


def calls(folder: Path, slot: int) -> list[list[list[Any]]]:
    """What each member of the group on ranks 1 to 3 was asked, in its environment ``slot``."""
    texts = [(folder / f"calls_{rank}_{slot}.jsonl").read_text() for rank in (1, 2, 3)]
    return [[json.loads(line) for line in text.splitlines()] for text in texts]


@pytest.mark.parametrize("ranks", [1, 2, 4, 6])
def test_all_ranks_compute_what_one_would(run_body: RunBody, ranks: int) -> None:
    found = run_body("group", ranks)
    assert found[0]["same"]
    assert found[0]["worst"] < 1e-6
    members = {name.split("/")[0] for name in found[0]["names"]}
    assert members == {str(rank) for rank in range(ranks)}
    for member in found:
        assert member["state"] == found[0]["state"]


@pytest.fixture(scope="module", params=["Replayed-v0", "Kept-v0"])
def interrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a group of three, stopped half way and resumed; both halves kept books."""
    folder = tmp_path_factory.mktemp(request.param)
    words = (*WORDS, "--env", request.param, *GROUP)
    job = paused(train(folder / "run", *words), folder / "first", at=250, rank=1, record=True)
    job.send(signal.SIGTERM)
    time.sleep(0.5)
    go_on(folder / "first")
    assert job.wait().code == 128 + signal.SIGTERM
    (folder / "second").mkdir()
    books = {"record": True, "folder": str(folder / "second")}
    run(resume(folder / "run"), subject=books).ok()
    return folder


def test_members_see_every_call_with_the_same_arguments(interrupted: Path) -> None:
    for half in ("first", "second"):
        for slot in (0, 1):
            members = calls(interrupted / half, slot)
            assert [member[0] for member in members] == [["make", [m, 3]] for m in range(3)]
            asked = [[call for call in member if call[0] != "set_state"] for member in members]
            assert asked[0][1:] == asked[1][1:] == asked[2][1:]
            assert asked[0][1][0] == "reset"
            assert asked[0][-1] == ["close", None]
            assert len(asked[0]) > 200


def test_each_member_gets_its_own_state_back(interrupted: Path) -> None:
    for slot in (0, 1):
        members = calls(interrupted / "second", slot)
        given = [[call for call in member if call[0] == "set_state"] for member in members]
        if "Kept" in interrupted.name:
            assert given == [[["set_state", member]] for member in range(3)]
        else:
            assert given == [[], [], []]


def test_a_resumed_group_continues_to_the_bit(
    interrupted: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = reference(tmp_path_factory.getbasetemp(), "pair", *WORDS, "--env", "CartPole-v1")
    assert summary_of(interrupted / "run")["env_restarts"] == 0
    assert_same(learning_of(interrupted / "run"), learning_of(whole))


def test_books_and_reference_agree_on_the_seeds(interrupted: Path) -> None:
    """Two environments, each with seeds of its own."""
    seeds = [
        {argument for call, argument in calls(interrupted / "first", slot)[0] if call == "reset"}
        for slot in (0, 1)
    ]
    assert not seeds[0] & seeds[1]
    assert np.all([seed >= 0 for group in seeds for seed in group])
