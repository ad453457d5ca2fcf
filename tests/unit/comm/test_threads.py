"""A process's share of the node's cores, and what it leaves to the programs it starts."""

from __future__ import annotations

import pytest

from exarl.comm.threads import (
    OPENMP,
    THREADS,
    XLA,
    Sharing,
    divide_cores,
    limit_threads,
    local_ranks,
    own_threads,
    unlimited,
)


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
    assert [environ[name] for name in THREADS] == ["5", "5", "5", "8"]
    assert unlimited(environ) == {"OMP_NUM_THREADS": "5"}
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


@pytest.mark.parametrize(
    ("cores", "learners", "others", "said", "shares"),
    [
        (16, 1, 4, "", (12, 1)),
        (16, 1, 4, "2", (8, 2)),
        (16, 4, 8, "", (2, 1)),
        (16, 8, 8, "", (1, 1)),
        (16, 3, 0, "", (5, 1)),
        (2, 1, 16, "", (1, 1)),
        (16, 1, 2, "4,2", (14, 1)),  # nested teams: OpenMP's, not EXARL's
    ],
)
def test_learners_take_the_cores_that_environments_leave(
    cores: int, learners: int, others: int, said: str, shares: tuple[int, int]
) -> None:
    sharing = Sharing(cores, learners, others)
    for learns, share in zip((True, False), shares, strict=True):
        environ = {OPENMP: said} if said else {}
        limit_threads(environ, cores)
        divide_cores(environ, sharing, learns)
        assert environ[XLA] == str(share)
        assert environ[OPENMP] == (said or str(share))
        assert own_threads(environ, learns) == (str(share) if learns or not said else said)
        assert XLA not in unlimited(environ)


def test_the_number_of_xla_s_threads_may_be_the_users() -> None:
    environ = {XLA: "7"}
    limit_threads(environ, 16)
    divide_cores(environ, Sharing(16, 1, 4), learns=True)
    assert (environ[XLA], own_threads(environ, learns=True)) == ("7", "7")
    assert environ[OPENMP] == "12"
    assert unlimited(environ) == {XLA: "7"}


def test_where_nothing_limits_a_rank_it_has_the_cores_that_it_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 5})
    assert own_threads({}, learns=True) == own_threads({}, learns=False) == "3"


@pytest.mark.parametrize(("cores", "enough"), [(3, False), (4, True)])
def test_ranks_have_cores_of_their_own_where_there_are_as_many(cores: int, enough: bool) -> None:
    assert Sharing(cores, 1, 3).enough == enough
