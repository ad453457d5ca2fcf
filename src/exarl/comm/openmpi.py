"""Open MPI: its version, and the settings that it needs before it starts."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, MutableMapping

from exarl.errors import ConfigError

_COMPONENTS = "OMPI_MCA_osc"
PATIENCE_S = 10.0
"""Seconds that a rank which has failed leaves the first rank to say why."""


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


def wait_to_be_ended(environ: Mapping[str, str], patience_s: float = PATIENCE_S) -> None:
    """Sleep, on another rank than the first, until the launcher ends this process, or ``patience_s``.

    The launcher of Open MPI ends a job as soon as one process fails. When all ranks refuse the same
    input, one that left sooner than the first rank would keep its message from being written. Other
    launchers let the first rank end: there is nothing to wait for.
    """
    if "OMPI_COMM_WORLD_RANK" in environ:
        time.sleep(patience_s)
