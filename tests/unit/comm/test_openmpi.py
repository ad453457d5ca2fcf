"""Open MPI is recognised, and its one-sided component that crashes is not used."""

from __future__ import annotations

import time

import pytest

from exarl.comm.openmpi import (
    check_one_sided,
    open_mpi_version,
    prepare_library,
    wait_to_be_ended,
)
from exarl.errors import ConfigError

OLD, NEW = "Open MPI v4.1.4, package: Debian OpenMPI", "Open MPI v5.0.11, package: Open MPI"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("mpiexec (Open MPI) 5.0.11", 5),
        ("mpiexec (OpenRTE) 4.1.4", 4),
        (OLD, 4),
        (NEW, 5),
        ("HYDRA build details:\n    Version:    5.0.2", 0),
        ("MPICH Version:      5.0.2", 0),
        ("", 0),
    ],
)
def test_versions(text: str, version: int) -> None:
    assert open_mpi_version(text) == version


def test_ranks_of_version_4_avoid_the_component_that_crashes() -> None:
    environ = {"OMPI_MCA_orte_hnp_uri": "x"}
    prepare_library(environ)
    assert environ["OMPI_MCA_osc"] == "^rdma"
    check_one_sided(OLD, environ)


def test_others_are_left_alone() -> None:
    for environ in ({}, {"OMPI_COMM_WORLD_RANK": "0"}, {"PMI_RANK": "0"}):
        before = dict(environ)
        prepare_library(environ)
        assert environ == before
        check_one_sided(NEW, environ)
        check_one_sided("MPICH Version: 5.0.2", environ)


def test_what_the_user_chose_stands() -> None:
    environ = {"OMPI_MCA_orte_hnp_uri": "x", "OMPI_MCA_osc": "sm,pt2pt"}
    prepare_library(environ)
    assert environ["OMPI_MCA_osc"] == "sm,pt2pt"
    check_one_sided(OLD, environ)


@pytest.mark.parametrize("chosen", ["", "^pt2pt", "rdma", "sm,rdma"])
def test_where_it_is_too_late_the_remedy_is_named(chosen: str) -> None:
    with pytest.raises(ConfigError, match=r"set OMPI_MCA_osc=\^rdma"):
        check_one_sided(OLD, {"OMPI_MCA_osc": chosen})


@pytest.mark.parametrize(
    ("environ", "waits"), [({"OMPI_COMM_WORLD_RANK": "1"}, True), ({"PMI_RANK": "1"}, False)]
)
def test_only_ranks_of_open_mpi_wait_to_be_ended(environ: dict[str, str], waits: bool) -> None:
    started = time.monotonic()
    wait_to_be_ended(environ, patience_s=0.2)
    assert (time.monotonic() - started > 0.1) == waits
