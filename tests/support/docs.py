"""The code blocks of the documentation.

Every ```` ```python ```` block is run, unless the line before it says otherwise:

    <!-- not run -->         the block is only read
    <!-- file: name.py -->   the block is written to a file of that name, which later blocks import

Every command, in a ```` ```sh ```` block or after ``$``, is run or at least understood, unless the line
before its block says:

    <!-- needs a cluster -->   or a network: what a test cannot have
    <!-- needs Slurm -->       run by tests/slurm
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL_PAGES = [*PAGES, *sorted(ROOT.glob("docs/*/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
ELSEWHERE = ("needs a cluster", "needs LAMMPS", "needs Slurm")

_BLOCK = re.compile(
    r"^(?:<!-- *(?P<mark>[^\n]*?) *-->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Snippet:
    """One fenced block: its language, what the comment above it says, its text and its line."""

    language: str
    mark: str
    code: str
    line: int

    @property
    def file(self) -> str | None:
        """The name of the file it is to be written to."""
        return self.mark.removeprefix("file:").strip() if self.mark.startswith("file:") else None

    def commands(self) -> list[str]:
        """The commands of the block, one a line, without what a shell does around them."""
        text = self.code.replace("\\\n", " ")
        lines = [line.strip() for line in text.splitlines()]
        if self.language == "":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        words = [part.strip() for line in lines for part in line.split("&&")]
        return [line for line in words if line and not line.startswith(("#", "for ", "done"))]

    @property
    def runs(self) -> bool:
        return self.mark != "not run" and self.file is None


def snippets(page: Path, language: str) -> list[Snippet]:
    """The blocks of one language on a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Snippet(
            found["language"],
            found["mark"] or "",
            found["code"],
            text.count("\n", 0, found.start("code")),
        )
        for found in _BLOCK.finditer(text)
        if found["language"] == language
    ]
