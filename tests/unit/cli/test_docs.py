"""``exarl docs``: where the installed documentation is."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from types import SimpleNamespace

import pytest

from exarl.cli import docs
from exarl.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installation, without documentation."""
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(docs, "find_spec", lambda name: spec)
    return tmp_path


def test_prints_the_first_page_and_opens_it(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    page = package / "docs_site" / "index.html"
    page.parent.mkdir()
    page.touch()
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    assert main(["docs"]) == 0
    assert capsys.readouterr().out == f"{page}\n" and not opened
    assert main(["docs", "--open"]) == 0
    assert opened == [page.as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert main(["docs", "--open"]) == 1
    assert "no browser" in capsys.readouterr().err


def test_says_how_to_build_what_is_absent(package: Path, capsys: Capture) -> None:
    assert main(["docs"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("exarl: ") and "'make docs'" in line
