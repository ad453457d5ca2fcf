"""The long description of the package: README.md with links that work outside the repository.

Links to files of the repository become absolute where EXARL_LINKS names a base address, and plain text
otherwise. Everything else is in pyproject.toml.
"""

import os
import re
from pathlib import Path

from setuptools import setup

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]*)\)")


def description(text: str, base: str) -> str:
    """``text`` with its relative links made absolute; without a base, without links and pictures."""

    def told(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if base:
            return f"{picture}[{words}]({base.rstrip('/')}/{target})"
        return "" if picture else words

    return LINK.sub(told, text)


readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
setup(
    long_description=description(readme, os.environ.get("EXARL_LINKS", "")),
    long_description_content_type="text/markdown",
)
