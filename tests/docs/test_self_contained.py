"""Nothing in the repository refers to what is outside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.docs import ROOT

OUTSIDE = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\.\./shared\b",
        r"(?<![\w/.])/work/",
        r"\b(design|house|peers)\.md\b",
        r"\bseed document\b",
        r"\bissue #?\d+\b",
        r"\bgoals? (of|in) (an|the|this) issue\b",
        r"\bthe seed's (trainer|files|pair)\b",
    )
]
OUTSIDE_IN_PROSE = re.compile(r"\bhelpers?\b|\bgoal was\b|\(goal\b|\| goal \|", re.IGNORECASE)
"""Checked in pages only: code may call a function a helper, and an agent may reach a goal."""

LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")


def tracked(*patterns: str) -> list[Path]:
    """The text files of the repository, as git lists them."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run([*words, *patterns], capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def lines(path: Path) -> list[str]:
    data = path.read_bytes()
    return [] if b"\0" in data else data.decode("utf-8", "replace").splitlines()


def test_no_file_refers_to_documents_outside() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked()
        for number, line in enumerate(lines(path), 1)
        if any(pattern.search(line) for pattern in OUTSIDE)
        or (path.suffix == ".md" and OUTSIDE_IN_PROSE.search(line))
    ]


def test_no_link_leaves_the_repository() -> None:
    assert not [
        f"{path.relative_to(ROOT)} links to {target}"
        for path in tracked("*.md")
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).resolve().is_relative_to(ROOT.resolve())
    ]
