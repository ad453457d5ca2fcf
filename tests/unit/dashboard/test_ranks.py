"""What the files of ranks tell: lanes, failures, logs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from support.runs import write_run

from exarl.dashboard.ranks import LOG_BYTES, MOST_SPANS, Ranks, log_names, read_log
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.lanes import LaneLog
from exarl.records.trace import Tracer, merge
from exarl.report.figures import PHASES, lanes


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return write_run(tmp_path / "run", world=3)


def lane(at: float, role: str = "actor", **seconds: float) -> str:
    return json.dumps({"t": at, "role": role, "rss_mb": 70.5, "s": seconds}) + "\n"


def test_lanes_grow_with_their_files_and_stay_bounded(run: RunDirectory) -> None:
    ranks = Ranks(run)
    path = run.rank_file("lanes", 1, "jsonl")
    for begin in range(0, 2000, 500):
        with path.open("a") as file:
            file.write(
                "".join(lane(100 + i, env=0.75, wait=0.25) for i in range(begin, begin + 500))
            )
            file.write('{"t": 5}\n[]\ndamaged\n')
        ranks.update()
    found = ranks.lanes[1]
    assert 100 <= len(found.spans) <= MOST_SPANS
    assert all(a.end == b.begin for a, b in zip(found.spans[:-1], found.spans[1:], strict=True))
    assert sum(span.seconds["env"] for span in found.spans) == pytest.approx(1500)
    assert found.memory_mb == 70.5
    assert ranks.split("actor") == pytest.approx({"env": 0.75, "wait": 0.25})
    assert ranks.split("learner") == {}


def test_a_rank_writes_the_lanes_that_are_read(run: RunDirectory) -> None:
    clock = Clock(Tracer(2, "actor", enabled=False))
    log = LaneLog(run.rank_file("lanes", 2, "jsonl"), "actor", clock)
    with clock.phase("wait"):
        time.sleep(0.05)
    with clock.phase("rollout"):
        time.sleep(0.05)
    clock.acted({"env": 0.04, "inference": 0.01})
    clock.take()
    log.close()
    ranks = Ranks(run)
    ranks.update()
    (span,) = ranks.lanes[2].spans
    assert span.seconds.keys() == {"wait", "env", "inference"}
    assert span.seconds["wait"] == pytest.approx(0.05, abs=0.03)
    assert span.seconds["env"] == 0.04


def test_lanes_of_a_run_that_kept_a_trace(run: RunDirectory, tmp_path: Path) -> None:
    parts = []
    for rank, role in enumerate(["learner", "actor"]):
        tracer = Tracer(rank, role)
        for second in range(4):
            tracer.add("rollout" if rank else "wait", second * 10**9, second * 10**9 + 6 * 10**8)
        parts.append(tmp_path / f"{rank}.json")
        tracer.write(parts[-1])
    merge(parts, run.trace)
    ranks = Ranks(run)
    ranks.update()
    assert [found.role for found in ranks.lanes.values()] == ["learner", "actor"]
    assert ranks.lanes[1].total["env"] == pytest.approx(2.4)


@pytest.mark.parametrize("ranks", [1, 200])
def test_a_figure_of_lanes_shows_the_shares_or_the_longest(ranks: int) -> None:
    spans = [
        (0.0, 5.0, {"env": 2.5, "inference": 0.5, "wait": 2.0}),
        (5.0, 10.0, {"wait": 3.0, "odd": 1.0}),
    ]
    names = [*PHASES]
    drawn = lanes([("1 actor", spans)] * ranks).data[0]
    z, x = np.asarray(drawn["z"]), np.asarray(drawn["x"])
    assert z.size <= 30_000
    first, second = z[:, x < 5], z[:, x > 5]
    if ranks == 1:
        found = [names[int(v)] for v in first[:-1, 0]]  # the last row is the gap below the lane
        assert found.count("env") == len(found) // 2
        assert set(found) == {"env", "inference", "wait"}
        return
    assert {names[int(v)] for v in first.ravel()} == {"env"}
    assert {names[int(v)] for v in second.ravel()} == {"wait"}


def test_failures_are_counted_in_the_logs_as_they_grow(run: RunDirectory) -> None:
    path = run.rank_file("rank", 1, "log")
    text = (
        "2026-11-19 22:07:20,370 WARNING exarl.envs.guard: environment {}: it was killed by SIGSEGV in"
        " step; see env_0000.out ({}; episode 6, step 12); it is restarted\n"
    )
    path.write_text(text.format(0, "crash") + "other\n" + text.format(3, "raise"))
    ranks = Ranks(run)
    ranks.update()
    with path.open("a") as file:
        file.write(text.format(0, "crash"))
    ranks.update()
    ranks.update()
    assert ranks.failures == {0: {"crash": 2}, 3: {"raise": 1}}


def test_a_log_is_read_from_its_end_and_then_on(run: RunDirectory) -> None:
    path = run.rank_file("rank", 0, "log")
    path.write_text("".join(f"line {i}\n" for i in range(20_000)))
    first = read_log(run, path.name, -1)
    assert str(first["text"]).startswith("line ") and str(first["text"]).endswith("line 19999\n")
    assert len(str(first["text"])) <= LOG_BYTES
    with path.open("a") as file:
        file.write("more\n")
    begin = first["next"]
    assert isinstance(begin, int)
    assert read_log(run, path.name, begin)["text"] == "more\n"
    path.write_text("short\n")
    assert read_log(run, path.name, begin) == {"text": "short\n", "next": 6, "fresh": True}


@pytest.mark.parametrize(
    "name", ["../config.json", "config.json", "", "rank_0000.log/..", "link.log"]
)
def test_only_logs_are_logs(run: RunDirectory, name: str) -> None:
    run.rank_file("rank", 0, "log").write_text("x\n")
    (run.logs / "rank_9.log").symlink_to(run.config)
    (run.logs / "link.log").symlink_to(run.config)
    assert log_names(run) == ["rank_0000.log"]
    for asked in (name, "rank_9.log"):
        with pytest.raises(KeyError):
            read_log(run, asked, 0)
