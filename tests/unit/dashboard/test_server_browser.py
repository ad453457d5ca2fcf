"""The dashboard in a real browser: what it draws, that it follows the files and stays small."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import CHROMIUM, Browser
from support.runs import make_row, write_run

from exarl.dashboard.server import Dashboard
from exarl.records.directory import RunDirectory
from exarl.records.lock import RunLock

pytest.importorskip("plotly")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

HOSTILE = "<img src=x onerror=document.body.remove()>"
NAMES = "[...document.querySelectorAll('#runs .run a')].map(a => a.textContent)"
TITLES = "[...document.querySelectorAll('#sections h2')].map(h => h.textContent)"
DRAWN = "document.querySelectorAll('#sections .main-svg').length"
LAST = "figures.get(document.querySelector('#sections .figure').id).data[0].y.at(-1)"
NODES = "document.querySelectorAll('*').length"
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"
MAPS = "Applying inline style violates"  # Plotly's maps, which no figure of ours has, want a style


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    """A run that goes on, between finished ones."""
    for i in range(12):
        write_run(tmp_path / f"runs/campaign/run_{i}", {"agent.gamma": 0.9 + i / 1000})
    changes = {"learner.agent": HOSTILE, "learner.workflow": "async"}
    name = f"now {HOSTILE}".replace("/", "")
    run = write_run(tmp_path / "runs" / name, changes, world=3, ended=False)
    run.rank_file("rank", 0, "log").write_text(f"first line {HOSTILE}\n")
    for rank, role in enumerate(["learner", "actor", "actor"]):
        rows = [{"t": 100 + i, "role": role, "s": {"env": 0.7, "wait": 0.2}} for i in range(50)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        run.rank_file("lanes", rank, "jsonl").write_text(text)
    with RunLock(run):
        yield run


@pytest.fixture
def address(run: RunDirectory) -> Iterator[str]:
    with Dashboard(run.path.parent, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


def add(run: RunDirectory, iteration: int, reward: float) -> None:
    with run.result.open("a") as file:
        file.write(json.dumps(make_row(iteration, reward)) + "\n")


def test_a_run_in_the_browser(run: RunDirectory, address: str, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.mkdir()
    with Browser(profile) as page:
        page.open(address)
        names: Any = page.wait_for(
            f"document.readyState == 'complete' && {NAMES}.length && {NAMES}"
        )
        assert names[0] == run.path.name, "the running one is first, its name as it is"
        assert len(names) == 13
        assert page.evaluate("location.search") == "", "the token does not stay in the address"
        assert page.evaluate(OVERFLOW) <= 0

        page.evaluate("document.querySelector('#runs .run a').click()")
        page.wait_for(f"{DRAWN} >= 2")
        titles = page.evaluate(TITLES)
        assert {"Now", "Learning curves", "Ranks", "Configuration"} <= set(titles)
        assert page.wait_for("el('log').textContent") == f"first line {HOSTILE}\n"

        page.evaluate("void (window.stays = document.querySelector('#sections .figure'))")
        nodes = []
        for i in range(41, 44):
            add(run, i, 1000.0 + i)
            page.wait_for(f"{LAST} == {1000 + i}")
            nodes.append(page.evaluate(NODES))
        assert page.evaluate("stays === document.querySelector('#sections .figure')")
        assert nodes[-1] <= nodes[0], "updates add nothing to the page"
        with run.rank_file("rank", 0, "log").open("a") as file:
            file.write("second line\n")
        page.wait_for("el('log').textContent.endsWith('second line\\n')")

        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.set_dark(True)
        page.wait_for("document.querySelector('.main-svg').style.background == 'rgb(20, 24, 29)'")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        page.resize(390, 844)
        assert page.evaluate(OVERFLOW) <= 0

        page.evaluate("location.hash = ''")
        page.wait_for("!el('list').hidden")
        assert page.evaluate(f"{DRAWN} + figures.size") == 0, "what was drawn is gone"
        page.evaluate("el('filter').value = 'campaign'; arrange(); el('compare').click()")
        page.wait_for(f"{TITLES}.includes('Result over parameters') && {DRAWN} >= 1")
        assert page.evaluate("document.querySelector('img')") is None, "no text became HTML"
        assert [each for each in page.complaints if not each.startswith(MAPS)] == []
