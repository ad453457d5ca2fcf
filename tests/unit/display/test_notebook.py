"""What a notebook shows of a run: progress below the cell, and the result."""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from exarl.display import notebook
from exarl.display.notebook import NotebookProgress, curve_svg
from exarl.display.progress import make_progress

LIMITS = {"total_steps": 100}


class Shown:
    """A stand-in for IPython: keeps what is displayed, and what it is replaced by."""

    def __init__(self) -> None:
        self.cells: list[str] = []

    def display(self, data: Mapping[str, str], *, raw: bool, display_id: bool) -> Shown:
        assert raw and display_id
        self.cells.append(data["text/html"])
        return self

    def update(self, data: Mapping[str, str], *, raw: bool) -> None:
        self.cells[-1] = data["text/html"]


class ZMQInteractiveShell:
    """The shell of a kernel; Rich knows it by its name, and must not display anything itself."""

    kernel = object()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Make this process the kernel of a notebook, as far as EXARL can see."""
    page = Shown()
    ipython: Any = SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=page.display))
    monkeypatch.setattr(notebook, "_REDRAW_SECONDS", 0)
    return page


def row(steps: int, reward: float | None) -> dict[str, float | None]:
    return {"timesteps_total": steps, "episode_reward_mean": reward}


def test_one_display_that_is_replaced(shown: Shown) -> None:
    stream = io.StringIO()
    progress = make_progress("DQN on <Mine>", LIMITS, stream)
    assert "starting" in shown.cells[0] and "&lt;Mine&gt;" in shown.cells[0]
    for steps in range(0, 50, 10):
        progress.update(row(steps, 2.5 * steps))
    progress.note("careful [bold]")
    progress.close()
    (page,) = shown.cells
    assert "40 / 100" in page and "100.0" in page and "careful [bold]" in page
    assert len(line_of(page)) == 5
    assert stream.getvalue() == ""  # nothing beside the display
    progress.update(row(90, 1.0))
    progress.close()
    assert shown.cells == [page]


def test_a_long_run_keeps_few_points_and_both_ends(shown: Shown) -> None:
    progress = NotebookProgress("long", {})
    for steps in range(5000):
        progress._next = float("inf")  # drawing is not what is tested
        progress.update(row(steps, None if steps % 7 == 0 else float(steps)))
    progress.close()
    points = line_of(shown.cells[0])
    assert 200 < len(points) <= 600
    steps = np.diff(points[:, 0])
    assert steps[:-1].min() > 0.8 * steps[:-1].max() and np.all(np.diff(points[:, 1]) < 0)
    assert "1</text>" in shown.cells[0] and "4,999 steps" in shown.cells[0]


def test_without_a_notebook_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = SimpleNamespace(get_ipython=SimpleNamespace)  # IPython in a terminal
    for ipython in (None, terminal, SimpleNamespace(get_ipython=lambda: None)):
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        stream = io.StringIO()
        make_progress("plain", LIMITS, stream).close()
        assert stream.getvalue() == "plain\n"


@pytest.mark.parametrize("rewards", [[1.0, 1.0], [-1e30, 1e30], [0.0, 1e-9]])
def test_the_curve_stays_in_its_picture(rewards: list[float]) -> None:
    points = line_of(curve_svg(np.array([[5.0, rewards[0]], [9.0, rewards[1]]])))
    assert np.all((points >= 0) & (points <= [640, 150]))
    assert curve_svg(np.zeros((1, 2))) == "" == curve_svg(np.array([]))


def line_of(page: str) -> np.ndarray:
    """The points of the curve in a page, [N, 2]."""
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    found = svg.find("polyline")
    assert found is not None
    return np.array([point.split(",") for point in found.attrib["points"].split()], float)
