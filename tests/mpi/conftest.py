"""Running one body of ``bodies.py`` on several ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_jobs import PYTHON, run, under_mpi

BODIES = Path(__file__).parent / "bodies.py"

RunBody = Callable[[str, int], list[dict[str, Any]]]


@pytest.fixture
def run_body(tmp_path: Path) -> RunBody:
    """``run_body(name, ranks)``: what each rank found."""

    def start(name: str, ranks: int) -> list[dict[str, Any]]:
        run(under_mpi(ranks, [PYTHON, BODIES, name, tmp_path])).ok()
        return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]

    return start
