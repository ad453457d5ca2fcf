"""Which ranks of a run share this rank's cores, found out among those on its machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from exarl.comm.channel import same_machine
from exarl.comm.threads import Sharing

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

MOST_CORES = 4096
"""Numbers of cores on a machine that are told apart."""


def find_sharing(comm: Intracomm, learns: bool) -> Sharing:
    """The ranks of ``comm`` that may run on this rank's cores, including itself; collective.

    A launcher that binds each rank to cores of its own leaves it alone with them.
    """
    here = same_machine(comm)
    allowed = os.sched_getaffinity(0)
    own = np.zeros(1 + MOST_CORES, np.uint8)
    own[0] = learns
    own[[1 + core % MOST_CORES for core in allowed]] = 1
    found = np.zeros((here.size, len(own)), np.uint8)
    here.Allgather(own, found)
    here.Free()
    beside = found[(found[:, 1:] & own[1:]).any(1)]
    learners = int(beside[:, 0].sum())
    return Sharing(len(allowed), learners, len(beside) - learners)
