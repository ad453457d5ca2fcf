"""The threads of a process: its share of the node's cores, set before NumPy is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

_LOCAL_RANKS = (
    "MPI_LOCALNRANKS",  # MPICH, Intel MPI
    "OMPI_COMM_WORLD_LOCAL_SIZE",  # Open MPI
    "PALS_LOCAL_SIZE",  # Cray
    "SLURM_NTASKS_PER_NODE",
)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NOTE = "EXARL_SET_THREADS"


def local_ranks(environ: Mapping[str, str]) -> int:
    """How many ranks the launcher started on this node; 1 if it does not say."""
    for name in _LOCAL_RANKS:
        value = environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return 1


def limit_threads(environ: MutableMapping[str, str], cores: int | None = None) -> None:
    """Limit every numeric library to this process's share of the cores, unless the user has set it.

    What is set here is also noted in the environment: it holds for this process and the programs that
    it starts, but not for the ranks of a job that it launches (``unlimited``).
    """
    for name in environ.keys() - unlimited(environ).keys():
        del environ[name]
    cores = cores or len(os.sched_getaffinity(0))
    said = environ.get("OMP_NUM_THREADS")
    share = said or str(max(1, cores // local_ranks(environ)))
    missing = [name for name in THREADS if name not in environ]
    environ.update(dict.fromkeys(missing, share))
    if said is None:
        environ[_NOTE] = " ".join(f"{name}={share}" for name in missing)


def unlimited(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without what ``limit_threads`` has set in it."""
    ours = environ.get(_NOTE, "").split()
    return {
        name: value
        for name, value in environ.items()
        if name != _NOTE and f"{name}={value}" not in ours
    }
