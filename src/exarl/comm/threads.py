"""The threads of a process: its share of the node's cores, set before NumPy and JAX are imported.

``limit_threads`` gives each process of a node the same; ``divide_cores``, when the roles of a run's
ranks are known, gives learners what the others leave.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

_LOCAL_RANKS = (
    "MPI_LOCALNRANKS",  # MPICH, Intel MPI
    "OMPI_COMM_WORLD_LOCAL_SIZE",  # Open MPI
    "PALS_LOCAL_SIZE",  # Cray
    "SLURM_NTASKS_PER_NODE",
)
OPENMP = "OMP_NUM_THREADS"
XLA = "NPROC"
"""How many threads XLA computes with on a CPU; it reads this when JAX first computes."""
THREADS = (OPENMP, "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", XLA)
_NOTE = "EXARL_SET_THREADS"


@dataclass(frozen=True)
class Sharing:
    """The ranks of a run that share a set of cores."""

    cores: int
    learners: int
    others: int  # actors, and the other ranks of environments

    @property
    def enough(self) -> bool:
        """Whether each rank can have a core of its own."""
        return self.learners + self.others <= self.cores


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
    cores = cores or len(os.sched_getaffinity(0))
    _limit(environ, max(1, cores // local_ranks(environ)))


def divide_cores(environ: MutableMapping[str, str], sharing: Sharing, learns: bool) -> None:
    """Limit the libraries of a rank, unless the user has set them: each rank of an environment has one
    core, or as many as OMP_NUM_THREADS says, and learners share the others."""
    said = unlimited(environ).get(OPENMP, "")
    needed = max(1, int(said)) if said.isdigit() else 1
    left = sharing.cores - needed * sharing.others
    _limit(environ, max(1, left // sharing.learners) if learns else needed)


def own_threads(environ: Mapping[str, str], learns: bool) -> str:
    """How many threads a rank computes with: a learner in XLA, another in its simulation."""
    return environ.get(XLA if learns else OPENMP) or str(len(os.sched_getaffinity(0)))


def unlimited(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without what has been set in it here."""
    ours = environ.get(_NOTE, "").split()
    return {
        name: value
        for name, value in environ.items()
        if name != _NOTE and f"{name}={value}" not in ours
    }


def _limit(environ: MutableMapping[str, str], share: int) -> None:
    for name in environ.keys() - unlimited(environ).keys():
        del environ[name]
    # OMP_NUM_THREADS is what users set for simulations and NumPy's libraries, not for XLA.
    limits = {**dict.fromkeys(THREADS, environ.get(OPENMP, str(share))), XLA: str(share)}
    missing = {name: limit for name, limit in limits.items() if name not in environ}
    environ.update(missing)
    environ[_NOTE] = " ".join(f"{name}={limit}" for name, limit in missing.items())
