"""The last lines of a program's own output, without those of its launcher and of Python."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 500
"""Characters of a program's last words that are passed on."""

_RULER = re.compile(r"[=-]{20,}\s*")
_LAUNCHERS = ("BAD TERMINATION", "mpiexec", "mpirun", "prterun", "srun:", "Primary job")
_OURS = "exarl: "


def last_words(output: str) -> str:
    """The last lines of ``output`` that are the program's own, as one line.

    What MPI launchers say after a program has ended, the frames of Python tracebacks and EXARL's own
    messages are left out, these only if something else is left.
    """
    lines = _without_launcher(output.splitlines())
    lines = [line.strip() for line in _without_frames(lines) if line.strip()]
    lines = [line for line in lines if not line.startswith(_OURS)] or lines
    text = ""
    for line in reversed(lines):
        longer = f"{line} {text}".rstrip()
        if len(longer) > LONGEST:
            return text or line[-LONGEST:]
        text = longer
    return " ".join(text.split())


def _without_launcher(lines: Sequence[str]) -> Sequence[str]:
    """The lines up to the ruler with which a launcher begins to speak."""
    for number, line in enumerate(lines):
        following = "\n".join(lines[number + 1 : number + 4])
        if _RULER.fullmatch(line) and any(word in following for word in _LAUNCHERS):
            return lines[:number] if any(map(str.strip, lines[:number])) else lines
    return lines


def _without_frames(lines: Sequence[str]) -> list[str]:
    """The lines without those of a Python traceback that say where, so that what was raised is left."""
    kept, inside = [], False
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif not inside or not line.startswith(" "):
            inside = False
            kept.append(line)
    return kept
