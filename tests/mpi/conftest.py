"""Running one body of ``bodies.py`` on several ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.jobs import LAUNCHER, PYTHON, run, under_mpi

if LAUNCHER.open_mpi == 4:  # bodies start MPI before EXARL could say this
    os.environ.setdefault("OMPI_MCA_osc", "^rdma")

BODIES = Path(__file__).parent / "bodies.py"

RunBody = Callable[[str, int], list[dict[str, Any]]]


@pytest.fixture
def run_body(tmp_path: Path) -> RunBody:
    """``run_body(name, ranks)``: what each rank found."""

    def start(name: str, ranks: int) -> list[dict[str, Any]]:
        run(under_mpi(ranks, [PYTHON, BODIES, name, tmp_path])).ok()
        return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]

    return start
