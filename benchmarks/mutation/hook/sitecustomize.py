"""Note which functions of EXARL a process enters, for which test; Python imports this at its start.

``benchmarks.mutation.reach`` puts this folder on PYTHONPATH, so that processes that tests start are
followed as well. ``MUTATION_NOTES`` names the folder of the notes, ``MUTATION_SOURCE`` the code.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType

SOURCE = os.environ.get("MUTATION_SOURCE", "")
NOTES = os.environ.get("MUTATION_NOTES", "")
seen: set[CodeType] = set()


def follow(frame: FrameType, event: str, argument: object) -> None:
    """A trace function that notes a function when it is first entered, and follows no lines."""
    code = frame.f_code
    if code in seen:
        return
    seen.add(code)
    if code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        if test:
            name = code.co_filename[len(SOURCE) :].lstrip("/")
            note(f"enters\t{test}\t{name}:{code.co_firstlineno}")


def note(line: str) -> None:
    """Append a line to the notes of this process."""
    path = os.path.join(NOTES, f"{os.getpid()}.txt")  # noqa: PTH118
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


if SOURCE and NOTES:
    threading.settrace(follow)  # type: ignore[arg-type]
    sys.settrace(follow)  # type: ignore[arg-type]
