"""The files that the recipes name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.docs import ROOT

PAGES = (ROOT / "CONTRIBUTING.md", ROOT / "docs/extending.md", ROOT / "docs/glossary.md")
NAMED = re.compile(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    missing = [name for name in named if "NAME" not in name and not (ROOT / name).exists()]
    assert not missing
