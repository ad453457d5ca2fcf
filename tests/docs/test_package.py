"""What is told of the package outside the repository."""

from __future__ import annotations

import re
import runpy
import sys
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest
from support.docs import ROOT

from exarl.version import __version__

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The long description that setup.py gives, with EXARL_LINKS as told."""

    def describe(links: str) -> str:
        given: dict[str, str] = {}
        monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=given.update))
        monkeypatch.setenv("EXARL_LINKS", links)
        runpy.run_path(str(ROOT / "setup.py"))
        return given["long_description"]

    return describe


def targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]*)\)", text)


def test_the_long_description_has_no_relative_links(described: Any) -> None:
    text = described("")
    assert all(target.startswith("https://") for target in targets(text))
    assert "![" not in text
    assert "docs/installing.md" in text  # as plain text


def test_relative_links_become_absolute(described: Any) -> None:
    text = described("https://example.org/exarl/")
    assert "(https://example.org/exarl/docs/installing.md)" in text
    assert all(target.startswith("https://") for target in targets(text))
    assert len(targets(text)) == len(targets(README))


def test_the_changelog_begins_with_this_version() -> None:
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.*?)\] - (.*)$", log, re.M)
    assert versions[0][0] == __version__
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for _, date in versions)


def test_every_extra_is_documented() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    table = page.partition("## Extras")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`(?=[^|]*\|[^|]*\|$)", table, re.M)) >= {
        name for name in project["optional-dependencies"] if name != "test"
    }
