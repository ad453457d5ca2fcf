"""``exarl evaluate --video``: a film, or one line on why there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from exarl.cli import film


class Blind(gymnasium.Env[Any, Any]):
    """Three steps, no pictures."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = 3
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.zeros(1, np.float32), 1.0, not self.left, False, {}


class Seeing(Blind):
    """Gives whatever ``picture`` is."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    picture: Any = np.full((16, 16, 3), 90, np.uint8)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> Any:
        return type(self).picture


@pytest.fixture(autouse=True)
def environments() -> Iterator[None]:
    gymnasium.register("Blind-v0", entry_point=Blind)
    gymnasium.register("Seeing-v0", entry_point=Seeing)
    yield
    for id in ("Blind-v0", "Seeing-v0"):
        del gymnasium.registry[id]


def trained(exarl: Any, env: str) -> str:
    words = ["--agent", "Random-v0", "--total_steps", "8", "--block_steps", "8", "--run_dir", "run"]
    assert exarl("train", "--env", env, *words).code == 0
    return "run"


def test_without_pygame_a_film_of_ones_own_pictures_is_made(
    exarl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    answer = exarl("evaluate", trained(exarl, "Seeing-v0"), "--episodes", "1", "--video", "a.gif")
    assert (answer.code, answer.err) == (0, "")
    assert Path("a.gif").read_bytes().startswith(b"GIF")


def test_without_pygame_gymnasiums_pictures_are_one_line(
    exarl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(exarl, "CartPole-v1")
    monkeypatch.setitem(sys.modules, "pygame", None)
    answer = exarl("evaluate", run, "--episodes", "1", "--video", "a.gif")
    answer.refused("pygame is not installed", "pip install 'exarl[video]'")
    assert not Path("a.gif").exists()
    assert exarl("evaluate", run, "--episodes", "1").code == 0


def test_an_environment_without_pictures_is_one_line(exarl: Any) -> None:
    run = trained(exarl, "Blind-v0")
    exarl("evaluate", run, "--video", "a.gif").refused("Blind-v0 makes no pictures")


@pytest.mark.parametrize(
    ("picture", "words"), [(None, "nothing"), ("x", "str"), (np.zeros((4, 4)), "(4, 4)")]
)
def test_what_is_no_picture_is_one_line(
    exarl: Any, monkeypatch: pytest.MonkeyPatch, picture: Any, words: str
) -> None:
    run = trained(exarl, "Seeing-v0")
    monkeypatch.setattr(Seeing, "picture", picture)
    exarl("evaluate", run, "--video", "a.gif").refused(words, "[height, width, 3]")
    assert not Path("a.gif").exists()


def test_frames_are_enlarged_and_tell_step_and_return(
    exarl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    written = film.captioned
    monkeypatch.setattr(
        film, "captioned", lambda frame, text: (told.append(text), written(frame, text))[1]
    )
    exarl("evaluate", trained(exarl, "Seeing-v0"), "--episodes", "1", "--video", "a.gif")
    assert told == [f"step {n}   return {n}" for n in range(4)]
    with Image.open("a.gif") as picture:
        assert picture.size[0] == 320  # 20 times 16
        below = np.asarray(picture.convert("L"))[320:]
    assert below.min() < 64  # dark letters
    assert below.max() > 240  # on white
