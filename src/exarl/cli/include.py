"""``exarl include``: what a compiler needs for programs that are environments."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from exarl.cli import words as line
from exarl.errors import ExarlError

HELP = """\
usage: exarl include [c|fortran]

Prints words for the command line of a compiler:

  cc $(exarl include) -O2 -o solver solver.c -lm
  gfortran $(exarl include fortran) -O2 -o solver solver.f90

For C and C++ this is where exarl_env.h (EXARL calls the program: ExaExternal-v0) and exarl_client.h
(the program owns its loop: ExaClient-v0) are; for Fortran also the source files of the modules
exarl_env and exarl_client. With another Fortran compiler, compile exarl_env.c with a C compiler first.
"""
FORTRAN = ("exarl_env.c", "exarl_env.f90", "exarl_client.f90")
"""What Fortran programs are compiled with, in this order."""


def include(words: list[str]) -> int:
    language = words.pop(0) if words else "c"
    line.check_choice(language, ["c", "fortran"], f"no headers for '{language}'")
    line.nothing_left(words)
    found = find_spec("exarl.envs")
    if found is None or found.origin is None:
        raise ExarlError("the files of this installation are not in a folder")
    folder = Path(found.origin).parent / "external"
    sources = [str(folder / name) for name in FORTRAN] if language == "fortran" else []
    sys.stdout.write(" ".join(["-I", str(folder), *sources]) + "\n")
    return 0
