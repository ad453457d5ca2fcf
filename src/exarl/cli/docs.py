"""``exarl docs``: the documentation that is installed with EXARL."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from exarl.cli import words as line
from exarl.errors import ExarlError

HELP = """\
usage: exarl docs [--open]

Prints where the first page of the documentation is: files of this installation, which a browser shows
without a network.

  --open    also open it in a browser
"""


def docs(words: list[str]) -> int:
    show = line.take_flag(words, "open")
    line.nothing_left(words)
    page = first_page()
    if page is None:
        raise ExarlError(
            "no documentation is installed here: 'make docs' in a clone of the repository builds it"
        )
    sys.stdout.write(f"{page}\n")
    if show:
        import webbrowser

        if not webbrowser.open(page.as_uri()):
            raise ExarlError("no browser was found: open the file above in one")
    return 0


def first_page() -> Path | None:
    """The first page of the installed documentation, if there is one."""
    found = find_spec("exarl")
    if found is None or found.origin is None:
        return None
    page = Path(found.origin).parent / "docs_site" / "index.html"
    return page if page.is_file() else None
