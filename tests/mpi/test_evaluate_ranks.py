"""Evaluating on ranks: groups that share an environment, and episodes that groups share out."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jobs import EXARL, LIGHT, run, train


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose environments need two ranks each."""
    path = tmp_path_factory.mktemp("grouped") / "run"
    words = ("--env", "ExaCartPole-v1", "--process_per_env", 2, "--procs", 3)
    run(train(path, *LIGHT, *words)).ok()
    return path


def test_groups_play_what_one_group_plays(grouped: Path) -> None:
    words = [*EXARL, "evaluate", grouped, "--episodes", 5]
    one = run([*words, "--procs", 2]).ok()
    assert len(one.out.splitlines()) == 8
    assert run([*words, "--procs", 4]).ok().out == one.out


def test_ranks_share_episodes_of_plain_environments() -> None:
    words = [*EXARL, "evaluate", "--agent", "Random-v0", "--env", "CartPole-v1", "--episodes", 1]
    alone = run(words).ok()
    assert run([*words, "--procs", 3]).ok().out == alone.out


def test_a_wrong_number_of_ranks_is_told_once(grouped: Path) -> None:
    for words in ([], ["--procs", 3]):
        ended = run([*EXARL, "evaluate", grouped, *words])
        assert ended.code == 2
        lines = [
            line for line in ended.err.splitlines() if line.startswith("exarl: process_per_env")
        ]
        assert len(lines) == 1
