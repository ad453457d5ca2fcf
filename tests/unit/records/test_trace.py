"""Spans of several ranks become one Chrome trace."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from exarl.records import trace
from exarl.records.trace import Tracer, merge


def spans_of(data: dict[str, Any], pid: int | None = None) -> list[dict[str, Any]]:
    return [e for e in data["traceEvents"] if e["ph"] == "X" and pid in (None, e["pid"])]


def metadata_of(data: dict[str, Any], kind: str) -> dict[int, dict[str, Any]]:
    return {e["pid"]: e["args"] for e in data["traceEvents"] if e["name"] == kind}


def merged(tmp_path: Path, *tracers: Tracer) -> dict[str, Any]:
    paths = [tmp_path / "logs" / f"trace_{tracer.rank}.json" for tracer in tracers]
    for tracer, path in zip(tracers, paths, strict=True):
        tracer.write(path)
    merge(paths, tmp_path / "trace.json")
    assert not list(tmp_path.rglob("*.tmp"))
    return json.loads((tmp_path / "trace.json").read_text())


def test_spans_nest_and_have_their_duration(tmp_path: Path) -> None:
    tracer = Tracer(0, "learner")
    with tracer.span("outer"):
        time.sleep(0.002)
        with tracer.span('in"ner'):
            time.sleep(0.005)
    data = merged(tmp_path, tracer)
    assert data["displayTimeUnit"] == "ms"
    inner, outer = spans_of(data)
    assert (inner["name"], outer["name"]) == ('in"ner', "outer")
    assert outer["ts"] == 0
    assert 5_000 <= inner["dur"] < outer["dur"]
    assert outer["ts"] + 2_000 <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def test_another_thread_has_a_track_of_its_own(tmp_path: Path) -> None:
    tracer = Tracer(3, "learner")
    tracer.add("learn", 0, 9)
    tracer.add("inference", 2, 5, beside=True)
    data = merged(tmp_path, tracer)
    assert {span["name"]: span["tid"] for span in spans_of(data)} == {"learn": 0, "inference": 1}
    threads = [e for e in data["traceEvents"] if e["name"] == "thread_name"]
    named = {event["tid"]: event["args"]["name"] for event in threads}
    assert named == {0: "learner", 1: "inference"}


def test_a_raising_body_is_recorded_and_raises() -> None:
    tracer = Tracer(0, "actor")
    with pytest.raises(ZeroDivisionError), tracer.span("step"):
        _ = 1 / 0
    assert len(tracer) == 1


def test_ranks_align_by_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two hosts whose perf_counter started 1 s apart: same wall clock, different readings.
    wall = 1_700_000_000_000_000_000
    tracers = []
    for rank, offset in ((0, 0), (1, 1_000_000_000)):
        monkeypatch.setattr(trace, "_wall_minus_perf_counter", lambda o=offset: wall - o)
        tracers.append(Tracer(rank, "learner" if rank == 0 else "actor"))
    tracers[0].add("learn", 5_000_000, 7_000_001)
    tracers[1].add("env", 1_000_000_000 + 4_000_000, 1_000_000_000 + 6_000_000)
    data = merged(tmp_path, *tracers)
    (learn,), (env,) = spans_of(data, 0), spans_of(data, 1)
    assert (env["ts"], env["dur"]) == (0, 2000)
    assert (learn["ts"], learn["dur"]) == (1000, 2000.001)
    assert metadata_of(data, "process_name") == {
        0: {"name": "rank 0 learner"},
        1: {"name": "rank 1 actor"},
    }
    assert metadata_of(data, "thread_name") == {0: {"name": "learner"}, 1: {"name": "actor"}}


def test_anchor_is_the_wall_clock() -> None:
    wall = time.perf_counter_ns() + trace._wall_minus_perf_counter()
    assert abs(wall - time.time_ns()) < 50_000_000


def test_memory_is_bounded_and_the_dropped_are_counted(tmp_path: Path) -> None:
    tracer = Tracer(3, "actor", limit=2)
    for i in range(5):
        tracer.add(f"span {i}", i, i + 1)
    assert (len(tracer), tracer.dropped) == (2, 3)
    data = merged(tmp_path, tracer)
    assert [span["name"] for span in spans_of(data)] == ["span 0", "span 1"]
    assert data["otherData"]["dropped_spans"] == {"rank 3 actor": 3}
    assert metadata_of(data, "process_labels") == {3: {"labels": "3 spans dropped"}}


def test_disabled_tracer_does_nothing(tmp_path: Path) -> None:
    tracer = Tracer(0, "learner", enabled=False)
    assert tracer.span("a") is tracer.span("b")
    with tracer.span("a"), tracer.span("b"):
        tracer.add("c", 0, 1)
    tracer.write(tmp_path / "part.json")
    assert len(tracer) == 0
    assert not list(tmp_path.iterdir())


def test_missing_and_damaged_parts_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = Tracer(1, "actor")
    good.add("env", 10, 20)
    good.write(tmp_path / "1.json")
    whole = (tmp_path / "1.json").read_text()
    (tmp_path / "2.json").write_text(whole[: len(whole) // 2])
    (tmp_path / "3.json").write_text('{"rank": 3}')
    (tmp_path / "4.json").write_text("[]")
    with caplog.at_level(logging.WARNING):
        merge([tmp_path / f"{i}.json" for i in range(5)], tmp_path / "trace.json")
    data = json.loads((tmp_path / "trace.json").read_text())
    assert {event["pid"] for event in data["traceEvents"]} == {1}
    for left_out in "0234":
        assert f"{left_out}.json left out" in caplog.text


def test_no_spans_and_no_parts_make_a_valid_trace(tmp_path: Path) -> None:
    assert spans_of(merged(tmp_path, Tracer(0, "learner"))) == []
    assert merged(tmp_path)["traceEvents"] == []


def test_a_failed_merge_leaves_the_old_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = Tracer(0, "learner")
    tracer.add("learn", 0, 1)
    before = merged(tmp_path, tracer)

    def fail(*_: object) -> Any:
        raise OSError("disk full")

    monkeypatch.setattr(trace, "_events", fail)
    with pytest.raises(OSError, match="disk full"):
        merged(tmp_path, tracer)
    assert json.loads((tmp_path / "trace.json").read_text()) == before
    assert not list(tmp_path.rglob("*.tmp"))
