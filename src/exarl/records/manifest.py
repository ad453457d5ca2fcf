"""What a run ran on: versions, hosts, layout, seed and commit."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("exarl", "numpy", "gymnasium", "jax", "jaxlib", "optax", "mpi4py", "safetensors")


def make_manifest(layout: Mapping[str, object], seed: int, **facts: object) -> dict[str, object]:
    """The manifest of a run that starts now; ``facts`` are added to it."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cores": len(os.sched_getaffinity(0)),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "seed": seed,
        "layout": dict(layout),
        **facts,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the working folder, where a user's own environment usually is; None: no commit."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
