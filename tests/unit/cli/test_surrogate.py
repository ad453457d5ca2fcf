"""``exarl surrogate`` on recorded episodes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from support.surrogates import oscillator

from exarl.cli import surrogate
from exarl.cli.main import main
from exarl.envs.space_json import space_to_json


class Dataset(SimpleNamespace):
    """Recorded episodes of an oscillator."""

    def __iter__(self) -> Any:
        return iter(oscillator(0, 4, 12))


def recorded(path: str) -> Any:
    return Dataset(
        path=Path(path),
        env_id="Oscillator-v0",
        observation=space_to_json(spaces.Box(-9, 9, (2,), np.float32)),
        action=space_to_json(spaces.Box(-1, 1, (1,), np.float32)),
    )


def test_a_folder_is_an_environment_with_its_errors_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(surrogate, "read", recorded)
    out = tmp_path / "learned"
    words = [
        "--hidden",
        "8",
        "--updates",
        "200",
        "--members",
        "2",
        "--elites",
        "2",
        "--horizon",
        "5",
    ]
    assert main(["surrogate", "RUN", "--out", str(out), *words]) == 0
    assert "on 1 episode not learned from" in capsys.readouterr().out
    errors = json.loads((out / "error.json").read_text())
    assert errors["steps"] == [1, 2, 3, 4, 5] and len(errors["model"]) == 5
    assert (out / "error.png").read_bytes().startswith(b"\x89PNG")
    env = gymnasium.make("ExaSurrogate-v0", path=str(out))
    assert env.observation_space.contains(env.reset(seed=0)[0])
    assert main(["surrogate", "RUN", "--out", str(out), *words]) == 2  # without --force
    assert "already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["RUN"], "--out FOLDER is required"),
        (["RUN", "--out", "/no/such/folder/here"], "there is no folder"),
        (["RUN", "--out", "x", "--hidden", "a"], "hidden is a list"),
        (["RUN", "--out", "x", "--elites", "9"], "elites=9 are more than"),
        (["RUN", "--out", "x", "--colour", "red"], "unexpected '--colour'"),
    ],
)
def test_bad_words_are_one_line_and_nothing_is_written(
    words: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(surrogate, "read", recorded)
    assert main(["surrogate", *words]) == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
