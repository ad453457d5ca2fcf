"""Playing the policy of a run: a table, its mean, and a film."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path

import pytest
from support.jobs import EXARL, Ended, run

from exarl.records.checkpoint import list_checkpoints


def evaluate(path: Path, *words: object) -> Ended:
    return run([*EXARL, "evaluate", path, *words])


def table(ended: Ended) -> list[tuple[float, int, str]]:
    """Reward, steps and ending of each episode."""
    rows = [line.split() for line in ended.out.splitlines() if line.strip()[:1].isdigit()]
    return [(float(reward), int(steps), cause) for _, reward, steps, cause in rows]


def test_the_table_and_its_mean(deep: Path) -> None:
    ended = evaluate(deep, "--episodes", 4).ok()
    rows = table(ended)
    assert len(rows) == 4
    assert all(reward == steps for reward, steps, _ in rows)  # CartPole gives 1 a step
    assert {cause for _, _, cause in rows} <= {"termination", "truncation"}
    mean = next(line for line in ended.out.splitlines() if line.startswith("reward "))
    assert float(mean.split()[1]) == pytest.approx(
        statistics.fmean(r for r, _, _ in rows), abs=1e-3
    )
    assert evaluate(deep, "--episodes", 4).out == ended.out
    other = evaluate(deep, "--episodes", 4, "--seed", 77).ok()
    assert table(other) != rows


def test_the_film_is_a_readable_gif(deep: Path, tmp_path: Path) -> None:
    from PIL import Image

    film = tmp_path / "film.gif"
    ended = evaluate(deep, "--episodes", 1, "--video", film).ok()
    ((_, steps, _),) = table(ended)
    with Image.open(film) as picture:
        assert picture.format == "GIF"
        assert picture.size == (600, 430)  # with step and return below
        # A GIF may hold two equal pictures as one that is shown for longer.
        assert 2 <= picture.n_frames <= steps + 1
        picture.seek(picture.n_frames - 1)
        picture.load()


def test_the_policy_of_a_checkpoint(killed: Path) -> None:
    steps = [int(path.name) for path in list_checkpoints(killed / "checkpoints")]
    for step in steps[:2]:
        ended = evaluate(killed, "--episodes", 1, "--checkpoint", step).ok()
        assert f"after {step} steps" in ended.out
    ended = evaluate(killed, "--checkpoint", 5)
    assert ended.code == 2
    assert str(steps[0]) in ended.err


def test_what_cannot_be_played(deep: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(deep, bare, ignore=shutil.ignore_patterns("0*"))
    for words in ((bare,), (deep, "--video", tmp_path / "film.avi"), (tmp_path / "nowhere",)):
        ended = evaluate(*words)
        assert ended.code in (1, 2)
        assert len(ended.err.strip().splitlines()) == 1
    assert json.loads((deep / "summary.json").read_text())["reason"] == "total_steps"
