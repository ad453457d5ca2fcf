"""One-sided memory: pools and the board under load, checked byte by byte."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.jobs import LIGHT, MPIEXEC, PYTHON, run, train, under_mpi

from exarl.comm.probe import near_and_far

BODIES = Path(__file__).parent / "one_sided.py"
ITEMS = 300

RunBody = Callable[[str, int], list[dict[str, Any]]]


@pytest.fixture
def body(tmp_path: Path) -> RunBody:
    """``body(name, ranks)``: what each rank found."""

    def start(name: str, ranks: int) -> list[dict[str, Any]]:
        run(under_mpi(ranks, [PYTHON, BODIES, name, tmp_path])).ok()
        return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]

    return start


def test_a_queue_on_another_rank_keeps_its_order(body: RunBody) -> None:
    found = body("queue_far", 2)[0]
    assert found["mine"] == [[1, number] for number in range(ITEMS)]


@pytest.mark.parametrize("name", ["queue_many", "queue_consumers"])
def test_every_item_is_taken_exactly_once(body: RunBody, name: str) -> None:
    found = body(name, 4)[0]
    producers = [1, 2, 3] if name == "queue_many" else [0]
    assert sorted(found["seen"]) == sorted([p, n] for p in producers for n in range(ITEMS))
    assert found["drop"] == 0


def test_a_stack_gives_every_item_once_and_the_newest_first(body: RunBody) -> None:
    found = body("stack", 3)[0]
    assert sorted(found["seen"]) == [[0, number] for number in range(ITEMS)]


def test_overwriting_counts_what_it_drops(body: RunBody) -> None:
    found = body("overwriting", 3)[0]
    assert len(found["seen"]) + found["drop"] == ITEMS
    assert len({tuple(pair) for pair in found["seen"]}) == len(found["seen"])


def test_a_buffer_shows_each_reader_only_newer_items(body: RunBody) -> None:
    for found in body("buffer", 3)[1:]:
        numbers = [number for _, number in found["mine"]]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == ITEMS - 1


def test_the_board_is_never_torn(body: RunBody) -> None:
    for found in body("board", 4)[1:]:
        assert found["last"] == 2_000
        assert found["reads"] > 0


def test_words_are_changed_atomically(body: RunBody) -> None:
    for found in body("words", 4):
        assert found == {"count": 800, "last": 199, "lost": 0}


def test_a_pool_does_not_run_out_of_numbers(body: RunBody) -> None:
    (found,) = body("long_lived", 1)
    assert found["seen"] == [[0, number, number - 2] for number in range(10)]


def test_the_probe_finds_that_one_sided_access_progresses_here(body: RunBody) -> None:
    (one, *others) = body("probe", 4)
    assert others == [one] * 3
    assert 0 < one["latency"] < 0.05


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no shared memory in the file system")
def test_too_little_shared_memory_is_one_line_and_not_a_bus_error(tmp_path: Path) -> None:
    words = ("--workflow", "rma", "--procs", 3, "--slots", 1024, "--block_steps", 10**6)
    ended = run(train(tmp_path / "run", *LIGHT, *words, "--envs_per_actor", 50))
    assert ended.code == 2
    last = ended.err.rstrip().splitlines()[-1]
    assert "exarl: one-sided memory for 3 ranks on this machine needs" in last
    assert "--shm-size" in last
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("workflow", "code"), [("async", 2), ("rma", 0)])
def test_more_learners_than_actors(tmp_path: Path, workflow: str, code: int) -> None:
    """One-sided, learners without actors of their own take others' blocks; by messages they cannot."""
    words = (*LIGHT, "--agent", "Teamed-v0", "--procs", 4, "--learner_procs", 3)
    ended = run(train(tmp_path / "run", *words, "--workflow", workflow))
    assert ended.code == code, ended.err
    assert ("learner_procs=3 needs at least as many actors, not 1" in ended.err) == bool(code)
    assert (tmp_path / "run").exists() == (not code)


def test_ranks_on_another_machine_are_probed_too(tmp_path: Path) -> None:
    """MPICH is told that odd ranks are elsewhere: the first actor, rank 2, is not. What travels over
    the network then needs its target's help, and no rank waits for that."""
    version = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True, check=False)
    if "HYDRA" not in version.stdout:
        pytest.skip("only MPICH can pretend that")
    words = (
        *LIGHT,
        "--agent",
        "Teamed-v0",
        "--procs",
        5,
        "--learner_procs",
        2,
        "--workflow",
        "rma",
    )
    ended = run(train(tmp_path / "run", *words), environ={"MPIR_CVAR_ODD_EVEN_CLIQUES": "1"}).ok()
    assert "using messages instead" in (tmp_path / "run" / "logs" / "rank_0000.log").read_text()
    assert "not matched" not in ended.err, "a message had no receiver"


def test_the_probe_reads_from_this_machine_and_from_another() -> None:
    assert near_and_far([4, 5, 6, 7], {0, 4, 5}) == [4, 6]
    assert near_and_far([4, 5], {0, 4, 5}) == [4]
    assert near_and_far([4, 5], {0}) == [4]
