"""Several learners with the same global batch learn what one learns."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jobs import PYTHON, run

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "claims" / "learners_loss.py"


@pytest.mark.slow
def test_the_loss_curve_does_not_depend_on_the_number_of_learners() -> None:
    # Seeds are up to 18% apart (benchmarks/RESULTS.md), so 25% is allowed. Gradients summed instead of
    # averaged, four times as long, would lower the first span's loss by 38%.
    words = ("--seeds", "1", "--learners", "1", "2", "4", "--tolerance", "0.25")
    run([PYTHON, PROGRAM, *words]).ok()
