"""What one rank does in ``test_matrix.py``: every case of the matrix, one run after the other.

mpiexec -n N python matrix.py WORKFLOW LEARNERS FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from mpi4py import MPI
from support.matrix import LEARN_ALONE, cases_of, parameters

from exarl import ExaLearner

if __name__ == "__main__":
    workflow, learners, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    for case in cases_of(workflow):
        ExaLearner(
            MPI.COMM_WORLD,
            argv=[],
            progress=False,
            workflow=workflow,
            learner_procs=1 if case in LEARN_ALONE else learners,
            run_dir=str(folder / case),
            **parameters(case),
        ).run()
