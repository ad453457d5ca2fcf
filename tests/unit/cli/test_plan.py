"""``exarl plan``: what it prints, draws and refuses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from exarl.cli import slurm

TIMES = ("--step_time", "30s", "--update_time", "5ms", "--updates_per_step", "0.1")
BENCH = {
    "workflow": "rma", "envs_per_actor": 2, "block_steps": 16, "procs": 5,
    "environment": {"steps_per_s": 50.0, "median_us": 19e3, "p99_us": 40e3},
    "acting": {"call_us": 30.0},
    "learning": {"steps_per_s": 500.0, "updates_per_s": 250.0, "update_us": 4000.0},
    "training": None,
    "time_split": {"learner": {}, "actors": {}},
}  # fmt: skip


def test_layouts_for_an_allocation(exarl: Any) -> None:
    answer = exarl("plan", *TIMES, "--procs", "128", "--total_steps", "1e5")
    assert answer.code == 0, answer
    first, second, _, head, *rows = answer.out.splitlines()
    assert first.startswith("a step 30 s; ")
    assert second == "100,000 steps"
    assert head.split()[:2] == ["workflow", "ranks"]
    words = rows[0].split()
    assert words[:3] == ["async", "128", "1"]
    assert float(words[6].replace(",", "")) == pytest.approx(127 / 30, rel=0.05)
    assert words[-1] == "simulations"


@pytest.mark.parametrize(
    ("words", "nodes"), [(("--procs", "100"), 2), (("--procs", "40", "--workflow", "sync"), 1)]
)
def test_the_slurm_line_is_one_that_slurm_takes(exarl: Any, words: Any, nodes: int) -> None:
    answer = exarl("plan", *TIMES, *words, "--process_per_env", "3")
    line = shlex.split(answer.out.splitlines()[-1].removesuffix(" --env ..."))
    assert line[:2] == ["exarl", "slurm"]
    options, command = slurm.split(line[2:])
    job = slurm.make(*slurm.parse(options), [*command, "--env", "CartPole-v1"])
    job = slurm.check(slurm.make(*slurm.parse(options), list(job.command)))
    assert job.nodes == nodes
    assert (job.ranks - 1) % 3 == 0
    assert "--total_steps" in job.command


def test_a_range_as_json(exarl: Any) -> None:
    answer = exarl("plan", *TIMES, "--procs", "1-1000", "--json", "--block_steps", "8")
    found = json.loads(answer.out)
    assert found["costs"]["step_s"] == 30.0
    ranks = [layout["ranks"] for layout in found["layouts"]]
    assert ranks == sorted(ranks)
    assert ranks[0] == 1
    assert ranks[-1] >= 990
    rates = [layout["steps_per_s"] for layout in found["layouts"]]
    assert rates == sorted(rates)
    assert {"lag_mean", "lag_max", "actor_idle", "learner_busy", "core_hours", "bound"} <= set(
        found["layouts"][0]
    )


def test_the_same_seed_gives_the_same_answer(exarl: Any) -> None:
    words = ("plan", *TIMES, "--procs", "16", "--step_spread", "0.5")
    first, again, other = (exarl(*words, "--seed", n).out for n in ("1", "1", "2"))
    assert first == again != other


def test_times_that_were_measured(exarl: Any) -> None:
    Path("bench.json").write_text(json.dumps(BENCH))
    answer = exarl("plan", "bench.json", "--procs", "9", "--json", "--step_time", "2s")
    found = json.loads(answer.out)
    assert found["costs"]["step_s"] == 2.0
    assert found["costs"]["update_s"] == 0.004
    layout = found["layouts"][0]
    assert (layout["workflow"], layout["block_steps"], layout["envs_per_actor"]) == ("rma", 16, 2)


def test_a_picture(exarl: Any) -> None:
    answer = exarl("plan", *TIMES, "--procs", "4", "--plot", "scaling.png", "--block_steps", "8")
    assert answer.code == 0, answer
    assert Path("scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_deadline_that_cannot_be_kept_is_said(exarl: Any) -> None:
    answer = exarl("plan", *TIMES, "--procs", "4", "--deadline", "1min")
    assert answer.code == 0
    assert "no layout keeps the deadline" in answer.out
    assert "(too late or too dear)" in answer.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--procs", "8"), "how long is a step?"),
        (TIMES, "how many ranks?"),
        ((*TIMES, "--procs", "8", "--step_time", "fast"), "--step_time is a time such as"),
        ((*TIMES, "--procs", "many"), "--procs is a count"),
        ((*TIMES, "--procs", "8", "--stragglers", "2x3"), "--stragglers is a part"),
        ((*TIMES, "--procs", "8", "--workflow", "asink"), "did you mean 'async'"),
        ((*TIMES, "--procs", "8", "--process_per_env", "1,4"), "need --parallel"),
        ((*TIMES, "--procs", "3", "--process_per_env", "4"), "--procs 3 is too few"),
        ((*TIMES, "--procs", "4", "--learner_procs", "3"), "--procs 4 is too few"),
        ((*TIMES, "--procs", "8", "--stepspread", "1"), "unexpected '--stepspread'"),
        ((*TIMES, "--procs", "8", "--plot", "no/where.png"), "there is no folder"),
        (("nothing.json", "--procs", "8"), "cannot read nothing.json"),
        (("text.json", "--procs", "8"), "it is not JSON"),
        (("fused.json", "--procs", "8"), "plan does not know workflow 'fused'"),
        (("other.json", "--procs", "8"), "not the output of 'exarl bench --json'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(exarl: Any, words: Any, expected: str) -> None:
    Path("text.json").write_text("no")
    Path("other.json").write_text("{}")
    Path("fused.json").write_text(json.dumps(BENCH | {"workflow": "fused"}))
    exarl("plan", *words).refused(expected)
