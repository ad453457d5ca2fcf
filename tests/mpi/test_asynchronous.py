"""The workflows without lockstep: the same learning as sync without lag, books that balance with it,
learners that stay equal, and runs that continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.jobs import (
    LIGHT,
    SMALL,
    assert_same,
    learned_rows,
    learning_of,
    newest,
    resume,
    run,
    run_all,
    summary_of,
    train,
)

LAGGING = ("async", "rma")
NO_LAG = ("--max_policy_lag", 0)

LONG = (*SMALL, "--n_step", 40)
"""Windows that begin in one block and end in a later one."""

PAIRS = (*LIGHT, "--agent", "Teamed-v0", "--procs", 6, "--learner_procs", 2,
         "--process_per_env", 2, "--env", "ExaCartPole-v1", "--check_learners", 1)  # fmt: skip
"""Two learners, and two environments of two ranks each."""

LATE = (*LIGHT, "--env", "Bulky-v0", "--procs", 3, "--checkpoint_interval", 0)

COMMANDS: dict[str, tuple[Any, ...]] = {
    "sync": (*LONG, "--procs", 2),
    "async": (*LONG, "--procs", 2, "--workflow", "async", *NO_LAG),
    "rma": (*LONG, "--procs", 2, "--workflow", "rma", *NO_LAG),
    "seed": (*LONG, "--procs", 2, "--workflow", "seed", *NO_LAG),
    "async serial": (*LONG, "--serial", "--workflow", "async"),
    "bound async": (*LIGHT, "--procs", 5, "--workflow", "async", "--max_policy_lag", 2),
    "bound rma": (*LIGHT, "--procs", 5, "--workflow", "rma", "--max_policy_lag", 2),
    "bound seed": (*LIGHT, "--procs", 5, "--workflow", "seed", "--max_policy_lag", 2),
    "seed groups": (*LIGHT, "--procs", 5, "--workflow", "seed", "--process_per_env", 2,
                    "--env", "ExaCartPole-v1", "--inference_batch", 1, "--inference_wait", 1),
    "turns": (*LIGHT, "--procs", 4, "--workflow", "async", "--order", "round_robin"),
    "stack": (*LIGHT, "--procs", 4, "--workflow", "rma", "--structure", "stack"),
    "buffer": (*LIGHT, "--procs", 4, "--workflow", "rma", "--structure", "buffer"),
    "central": (*LIGHT, "--procs", 4, "--workflow", "rma", "--location", "central"),
    "full": (*LIGHT, "--procs", 4, "--workflow", "rma", "--when_full", "overwrite", "--slots", 1),
    "groups": (*LIGHT, "--procs", 5, "--workflow", "rma", "--process_per_env", 2,
               "--env", "ExaCartPole-v1"),
    "pairs async": (*PAIRS, "--workflow", "async"),
    "pairs rma": (*PAIRS, "--workflow", "rma"),
    # Answers to checkpoints that the end overtakes, too long to be sent without a receiver:
    "late async": (*LATE, "--workflow", "async"),
    "late rma": (*LATE, "--workflow", "rma"),
    "late seed": (*LATE, "--workflow", "seed"),
    "fixed": (*LIGHT, "--procs", 3, "--workflow", "async", "--action_type", "fixed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asynchronous")
    jobs = run_all({n: train(folder / n, *words) for n, words in COMMANDS.items()})
    for name, ended in jobs.items():
        (folder / f"{name}.err").write_text(ended.ok().err)
    return folder


@pytest.mark.parametrize("name", ["async", "rma", "seed", "async serial"])
def test_one_actor_without_lag_learns_what_sync_learns(runs: Path, name: str) -> None:
    assert_same(learning_of(runs / name), learning_of(runs / "sync"))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_books_balance(runs: Path, name: str) -> None:
    blocks = summary_of(runs / name)["blocks"]
    assert blocks["trained"] * 32 == summary_of(runs / name)["timesteps_total"]
    if "serial" not in name and name != "sync":
        distinct = blocks["trained"] - blocks["redundant"]
        assert distinct + blocks["left"] + blocks["dropped"] == blocks["produced"]


@pytest.mark.parametrize("name", ["bound async", "bound rma", "bound seed"])
def test_the_lag_is_bounded(runs: Path, name: str) -> None:
    lags = [row["policy_lag_max"] for row in learned_rows(runs / name)]
    assert max(lags) <= 2


@pytest.mark.parametrize(
    "name", ["bound async", "bound rma", "bound seed", "seed groups", "turns", "central", "groups"]
)
def test_nothing_is_dropped_while_the_run_lasts(runs: Path, name: str) -> None:
    blocks = summary_of(runs / name)["blocks"]
    actors = 4 if name.startswith("bound") else 3
    assert blocks["dropped"] <= actors  # at most the block each had in hand at the end


def test_a_full_queue_that_overwrites_says_so(runs: Path) -> None:
    assert summary_of(runs / "full")["blocks"]["dropped"] >= 0
    assert summary_of(runs / "bound rma")["blocks"]["redundant"] == 0


@pytest.mark.parametrize("name", ["sync", "async", "rma", "async serial"])
def test_the_first_update_is_shown_as_compiling(runs: Path, name: str) -> None:
    lines = (runs / f"{name}.err").read_text().splitlines()
    (at,) = [i for i, line in enumerate(lines) if line == "compiling the first update ..."]
    assert any(line.startswith("32 steps") for line in lines[:at]), "the replay was warmed up first"
    assert lines[at + 1].startswith("compiled the first update in ")
    split = summary_of(runs / name)["time_split"]["learner"]
    assert 0 < split["compile"] < 1
    assert 0 < split["learn"] < 1


def test_fixed_actions_are_the_first_action(runs: Path) -> None:
    """CartPole pushed always to the left falls within about ten steps."""
    assert summary_of(runs / "fixed")["last_reward_mean"] < 11


@pytest.mark.slow
@pytest.mark.parametrize(
    "workflow", [LAGGING[0], *(pytest.param(w, marks=pytest.mark.slow) for w in LAGGING[1:])]
)
def test_learners_start_equal_and_stay_equal(tmp_path: Path, workflow: str) -> None:
    words = (*SMALL, "--workflow", workflow, "--learner_procs", 2, "--procs", 4)
    run(train(tmp_path / "run", *words, "--check_learners", 1)).ok()
    kept = newest(tmp_path / "run").arrays
    mine, theirs = (
        {n: a.tobytes() for n, a in kept[stem].items() if n.startswith("learned")}
        for stem in ("agent", "agent_0001")
    )
    assert mine == theirs


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 4])
def test_two_learners_learn_like_one(tmp_path: Path, every: int) -> None:
    """Same steps and updates; the loss ends in the same region (a factor of three)."""
    words = (*SMALL, "--workflow", "async")
    jobs = {
        "one": train(tmp_path / "one", *words, "--procs", 3),
        "two": train(tmp_path / "two", *words, "--procs", 4, "--learner_procs", 2,
                     "--average_every", every),
    }  # fmt: skip
    for ended in run_all(jobs).values():
        ended.ok()
    one, two = (summary_of(tmp_path / name) for name in jobs)
    assert abs(one["updates_total"] - two["updates_total"]) <= 96
    last = [learned_rows(tmp_path / name)[-1]["loss"] for name in jobs]
    assert 1 / 3 < last[0] / last[1] < 3


@pytest.mark.slow
@pytest.mark.parametrize("workflow", ["async", pytest.param("rma", marks=pytest.mark.slow)])
def test_a_run_continues_with_other_numbers_of_actors_and_learners(
    tmp_path: Path, workflow: str
) -> None:
    path = tmp_path / "run"
    run(train(path, *SMALL, "--workflow", workflow, "--procs", 3)).ok()
    before = summary_of(path)
    run(resume(path, "--total_steps", 2500, "--procs", 5, "--learner_procs", 2)).ok()
    after = summary_of(path)
    assert after["timesteps_total"] >= 2500
    assert after["updates_total"] > before["updates_total"]
    assert after["episodes_total"] > before["episodes_total"]
    replayed = newest(path).arrays["agent"]["replay/size"]
    assert int(replayed) > 1500


def test_blocks_that_were_under_way_are_trained_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run(train(path, *LIGHT, "--workflow", "rma", "--procs", 4)).ok()
    left = summary_of(path)["blocks"]["left"]
    assert len({name.partition("/")[0] for name in newest(path).arrays["pending"]}) == left
    steps = summary_of(path)["timesteps_total"]
    run(resume(path, "--total_steps", steps + 32 * max(left, 1))).ok()
    assert summary_of(path)["blocks"]["trained"] * 32 >= steps + 32 * left
