"""Open MPI: which version it is, and what it must be told before it starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping

from exarl.errors import ConfigError

_COMPONENTS = "OMPI_MCA_osc"


def open_mpi_version(text: str) -> int:
    """Open MPI's major version in what its launcher or its library says of itself; 0: not Open MPI."""
    found = re.search(r"(?:Open MPI|OpenRTE)\)? v?(\d+)\.", text)
    return int(found[1]) if found else 0


def prepare_library(environ: MutableMapping[str, str]) -> None:
    """Tell the MPI library of a rank, before it starts, what it must avoid.

    In Open MPI 4 windows over ``osc/rdma`` crash in MPI_Compare_and_swap; its other components
    work. Only its launcher of that time, ORTE, puts these variables into the environment.
    """
    if any(name.startswith("OMPI_MCA_orte_") for name in environ):
        environ.setdefault(_COMPONENTS, "^rdma")


def check_one_sided(library: str, environ: Mapping[str, str]) -> None:
    """Refuse the windows of Open MPI 4 where they would crash: MPI was started before EXARL, or by a
    launcher that does not say whose it is."""
    chosen = environ.get(_COMPONENTS, "")
    excluded = "rdma" in chosen if chosen.startswith("^") else chosen and "rdma" not in chosen
    if open_mpi_version(library) == 4 and not excluded:
        raise ConfigError(
            "one-sided communication of Open MPI 4 crashes with its component osc/rdma;"
            f" set {_COMPONENTS}=^rdma before the job starts, or use workflow 'async'"
        )
