"""Threads of a process: its share of the node's cores, set before NumPy is imported."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

_LOCAL_RANKS = (
    "MPI_LOCALNRANKS",  # MPICH, Intel MPI
    "OMPI_COMM_WORLD_LOCAL_SIZE",  # Open MPI
    "PALS_LOCAL_SIZE",  # Cray
    "SLURM_NTASKS_PER_NODE",
)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def local_ranks(environ: MutableMapping[str, str]) -> int:
    """How many ranks the launcher put on this node; 1 when nobody says."""
    for name in _LOCAL_RANKS:
        value = environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return 1


def limit_threads(environ: MutableMapping[str, str], cores: int | None = None) -> None:
    """Give every numeric library this rank's share of the cores, unless the user has said more."""
    cores = cores or len(os.sched_getaffinity(0))
    share = str(max(1, cores // local_ranks(environ)))
    for name in THREADS:
        environ.setdefault(name, environ.get("OMP_NUM_THREADS", share))
