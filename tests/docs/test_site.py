"""The documentation site: it is complete, and reading it needs no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import ROOT

import exarl
from exarl.cli.describe import catalogue

FETCHED = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc=["'](?:https?:)?//|<link\b[^>]*\bhref=["'](?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import\s+["'](?:https?:)?//"""
)
"""What a browser would load from elsewhere; links that a reader may follow are not."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "myst_parser", "furo", "jupytext"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site") / "html"
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs/site/build.py"), str(folder)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_name_and_component_has_its_place(site: Path) -> None:
    reference = (site / "docs/api.html").read_text(encoding="utf-8")
    assert [name for name in exarl.__all__ if f'id="exarl.{name}"' not in reference] == []
    for component in catalogue():
        page = (site / f"docs/components/{component.id}.html").read_text(encoding="utf-8")
        assert all(f">{name}<" in page for name in component.schema)


@pytest.mark.slow
def test_the_first_page_has_a_picture_and_leads_everywhere(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    assert re.search(r'<img[^>]*src="_images/', first)
    reached = {site / link for link in re.findall(r'href="([^"#:]+\.html)"', first)}
    pages = {page for page in site.glob("docs/**/*.html") if page.parent.name != "components"}
    assert pages <= reached


@pytest.mark.slow
def test_nothing_is_fetched_to_read_it(site: Path) -> None:
    files = [path for kind in ("html", "css") for path in site.rglob(f"*.{kind}")]
    assert len(files) > 50
    assert not [
        f"{path.relative_to(site)}: {found[0]}"
        for path in files
        for found in FETCHED.finditer(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.slow
def test_tutorials_are_notebooks(site: Path) -> None:
    notebooks = {path.stem: json.loads(path.read_text()) for path in site.rglob("*.ipynb")}
    assert notebooks.keys() == {path.stem for path in (ROOT / "docs/tutorials").glob("*.md")}
    for notebook in notebooks.values():
        sources = ["".join(cell["source"]) for cell in notebook["cells"]
                   if cell["cell_type"] == "code"]  # fmt: skip
        assert any(text.startswith("%%bash") for text in sources)
        assert not any("squeue" in text or "--submit" in text for text in sources)
    (c_file,) = (cell for cell in notebooks["cartpole"]["cells"]
                 if "".join(cell["source"]).startswith("%%writefile balance.c"))  # fmt: skip
    assert c_file["cell_type"] == "code"
