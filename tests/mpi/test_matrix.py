"""Every agent in every workflow it can learn in, alone and with several learners."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.jobs import PYTHON, run, summary_of, under_mpi
from support.matrix import cases_of

BODY = Path(__file__).parent / "matrix.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workflow", "ranks", "learners"),
    [
        ("async", 3, 1),
        pytest.param("rma", 4, 2, marks=pytest.mark.slow),
        pytest.param("seed", 3, 1, marks=pytest.mark.slow),
    ],
)
def test_every_agent_trains(workflow: str, ranks: int, learners: int, tmp_path: Path) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(BODY.parent.parent), os.environ.get("PYTHONPATH", "")]
    )
    run(under_mpi(ranks, [PYTHON, BODY, workflow, learners, tmp_path])).ok()
    for case in cases_of(workflow):
        summary = summary_of(tmp_path / case)
        assert summary["reason"] == "total_steps", case
        assert summary["timesteps_total"] >= 200
        assert (summary["updates_total"] > 0) == (case != "Random"), case
        blocks = summary["blocks"]
        if workflow != "sync":
            assert blocks["produced"] == blocks["trained"] + blocks["left"] + blocks["dropped"]
