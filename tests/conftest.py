"""What tests of several folders share."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """What tests, and the hundreds of processes they start, need not do again and again.

    Programs of one shape are compiled once: compiling takes ten times longer than the toys take to
    learn. The modules of EXARL are compiled once too, also where Python is told to keep no bytecode:
    that is a third of what a rank without JAX costs.
    """
    if hasattr(config, "workerinput"):  # of pytest-xdist: it has the variables of its starter
        return
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, by children too
    folder = tempfile.mkdtemp(prefix="exarl-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # Many runs of a few tests each (benchmarks/mutation) share what they have compiled.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ.get("EXARL_TESTS_COMPILED", folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A home of their own: no settings of the user's in the tests, no key of the tests in the user's.
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    home = Path(folder) / "home"
    home.mkdir()
    os.environ["HOME"] = str(home)
