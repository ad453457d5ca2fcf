"""Open MPI: its version, and the settings that it needs before it starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping

from exarl.errors import ConfigError

_COMPONENTS = "OMPI_MCA_osc"


def open_mpi_version(text: str) -> int:
    """Open MPI's major version in the version text of its launcher or library; 0: not Open MPI."""
    found = re.search(r"(?:Open MPI|OpenRTE)\)? v?(\d+)\.", text)
    return int(found[1]) if found else 0


def prepare_library(environ: MutableMapping[str, str]) -> None:
    """Set, before MPI starts, which component of Open MPI 4 must not be used.

    Its windows over ``osc/rdma`` crash in MPI_Compare_and_swap; its other components work. Only the
    launcher of that version, ORTE, sets the variables that are looked for here.
    """
    if any(name.startswith("OMPI_MCA_orte_") for name in environ):
        environ.setdefault(_COMPONENTS, "^rdma")


def check_one_sided(library: str, environ: Mapping[str, str]) -> None:
    """ConfigError if the windows of Open MPI 4 would crash: if MPI was started before EXARL, or by a
    launcher that cannot be identified."""
    chosen = environ.get(_COMPONENTS, "")
    excluded = "rdma" in chosen if chosen.startswith("^") else chosen and "rdma" not in chosen
    if open_mpi_version(library) == 4 and not excluded:
        raise ConfigError(
            "one-sided communication of Open MPI 4 crashes with its component osc/rdma;"
            f" set {_COMPONENTS}=^rdma before the job starts, or use workflow 'async'"
        )
