"""Programs that are environments: compiled examples, one that misbehaves, and a server in a thread."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exarl.envs.external.env import HEADER
from exarl.envs.external.serve import Server
from exarl.envs.external.session import Limits

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "external"
CC, CXX, FORTRAN = (shutil.which(name) for name in ("cc", "c++", "gfortran"))
MPICC = shutil.which("mpicc", path=str(Path(sys.executable).parent)) or shutil.which("mpicc")
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")

HOST = (sys.executable, "-m", "exarl.envs.external.host")
"""Hosts the environment whose id comes next."""


@functools.cache
def folder() -> Path:
    """Where programs are compiled to, once for all tests."""
    path = Path(tempfile.mkdtemp(prefix="exarl-programs-"))
    import atexit

    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def compiled(source: Path, compiler: str | None = CC, flags: Sequence[str] = STRICT) -> str:
    """The program made of ``source``; the test is skipped where there is no compiler."""
    if compiler is None:
        pytest.skip("no compiler")
    target = folder() / source.stem
    words = [compiler, *flags, "-O1", "-I", str(HEADER.parent), "-o", str(target), str(source)]
    done = subprocess.run([*words, "-lm"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(target)


@functools.cache
def in_fortran(source: Path) -> str:
    """The program made of ``source``; the test is skipped where there is no compiler."""
    if CC is None or FORTRAN is None:
        pytest.skip("no gfortran")
    caller, target = folder() / "exarl_env.o", folder() / source.stem
    here = HEADER.parent
    words = [CC, *STRICT, "-c", "-I", str(here), str(here / "exarl_env.c"), "-o", str(caller)]
    subprocess.run(words, check=True)
    sources = [here / "exarl_env.f90", here / "exarl_client.f90", source]
    flags = ["-std=f2008", "-Wall", "-Wextra", "-Werror", "-J", str(folder())]
    words = [FORTRAN, *flags, *map(str, sources), str(caller), "-o", str(target)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(target)


def cartpole() -> str:
    """examples/external/cartpole.c"""
    return compiled(EXAMPLES / "cartpole.c")


def pendulum() -> str:
    """examples/client/pendulum.c, which owns its loop"""
    return compiled(ROOT / "examples" / "client" / "pendulum.c")


def subject(*orders: str) -> str:
    """The command of a program that misbehaves as ordered; see subject.c."""
    program = compiled(Path(__file__).parents[1] / "unit" / "envs" / "subject.c")
    return " ".join([program, *orders])


@contextmanager
def serving(
    command: Sequence[str], address: str = "tcp://127.0.0.1:*", keys: Any = None, **limits: Any
) -> Iterator[Server]:
    """A server in a thread of this process."""
    done = threading.Event()
    server = Server(command, address, keys=keys, limits=replace(Limits(), **limits))
    thread = threading.Thread(target=lambda: (server.run(done.is_set), server.close()))
    thread.start()
    try:
        yield server
    finally:
        done.set()
        thread.join(20)
        assert not thread.is_alive()
