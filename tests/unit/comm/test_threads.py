"""A process's share of the node's cores, and what it leaves to the programs it starts."""

from __future__ import annotations

import pytest

from exarl.comm.threads import THREADS, limit_threads, local_ranks, unlimited


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        ({}, 1),
        ({"MPI_LOCALNRANKS": "4"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, 3),
        ({"SLURM_NTASKS_PER_NODE": "2(x3)", "PALS_LOCAL_SIZE": "0"}, 1),
        ({"SLURM_NTASKS_PER_NODE": "6", "MPI_LOCALNRANKS": ""}, 6),
    ],
)
def test_the_launcher_says_how_many_share_a_node(environ: dict[str, str], ranks: int) -> None:
    assert local_ranks(environ) == ranks


@pytest.mark.parametrize(("cores", "ranks", "share"), [(8, 1, "8"), (8, 3, "2"), (2, 5, "1")])
def test_every_library_gets_the_share(cores: int, ranks: int, share: str) -> None:
    environ = {"MPI_LOCALNRANKS": str(ranks), "OTHER": "x"}
    limit_threads(environ, cores)
    assert {environ[name] for name in THREADS} == {share}
    assert unlimited(environ) == {"MPI_LOCALNRANKS": str(ranks), "OTHER": "x"}


def test_what_the_user_has_said_stays() -> None:
    environ = {"OMP_NUM_THREADS": "5"}
    limit_threads(environ, 8)
    assert environ == dict.fromkeys(THREADS, "5")
    assert unlimited(environ) == environ
    environ = {"MKL_NUM_THREADS": "3"}
    limit_threads(environ, 8)
    assert (environ["MKL_NUM_THREADS"], environ["OMP_NUM_THREADS"]) == ("3", "8")
    assert unlimited(environ) == {"MKL_NUM_THREADS": "3"}


def test_a_limit_that_was_inherited_is_set_again() -> None:
    environ: dict[str, str] = {}
    limit_threads(environ, 8)
    environ["MPI_LOCALNRANKS"] = "4"
    limit_threads(environ, 8)
    assert {environ[name] for name in THREADS} == {"2"}
    environ["OMP_NUM_THREADS"] = "7"  # changed by the user meanwhile: it is not ours any more
    limit_threads(environ, 8)
    assert environ["OMP_NUM_THREADS"] == "7"


def test_the_cores_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 5})
    environ: dict[str, str] = {}
    limit_threads(environ)
    assert environ["OMP_NUM_THREADS"] == "3"
