"""What tests of several folders share."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Programs of one shape are compiled once for all tests and for the jobs they start: compiling
    takes ten times longer than the toys take to learn."""
    folder = tempfile.mkdtemp(prefix="exarl-compiled-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
