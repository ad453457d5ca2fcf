"""The event writer, with the real TensorBoard as the oracle."""

from __future__ import annotations

import math
import os
import socket
from pathlib import Path

import pytest

from exarl.records import events
from exarl.records.events import EventWriter, crc32c

pytest.importorskip("tensorboard")


def read_events(folder: Path) -> list:
    """Every event in the one file of ``folder``, checksums verified by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    (path,) = folder.iterdir()
    return [Event.FromString(raw) for raw in RawEventFileLoader(str(path)).Load()]


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        # RFC 3720, appendix B.4, and the check value of the CRC catalogue
        (b"\x00" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_crc32c(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


def test_accumulator_reads_back_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = EventWriter(tmp_path)
    for step in (1, 300, 70_000, 5_000_000_000):
        writer.scalars(step, {"reward": step / 4, "time/env": 0.25}, wall_time=1e9 + step)
    writer.close()

    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert accumulator.file_version == 2.0
    assert set(accumulator.Tags()["scalars"]) == {"reward", "time/env"}
    found = [(e.step, e.value, e.wall_time) for e in accumulator.Scalars("reward")]
    assert found == [(s, s / 4, 1e9 + s) for s in (1, 300, 70_000, 5_000_000_000)]
    assert [e.value for e in accumulator.Scalars("time/env")] == [0.25] * 4


def test_one_step_is_one_event(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalars(7, {f"metric {i} µ" * 20: float(i) for i in range(40)})  # lengths over 127
    writer.close()
    version, event = read_events(tmp_path)
    assert version.file_version == "brain.Event:2"
    assert event.step == 7
    assert [(v.tag, v.simple_value) for v in event.summary.value] == [
        (f"metric {i} µ" * 20, float(i)) for i in range(40)
    ]


def test_unusual_numbers(tmp_path: Path) -> None:
    values = {"nan": math.nan, "inf": math.inf, "minus": -math.inf, "big": 1e300, "low": -1e300}
    writer = EventWriter(tmp_path)
    writer.scalars(-3, values)
    writer.scalars(0, {})
    writer.close()
    _, event, empty = read_events(tmp_path)
    found = {v.tag: v.simple_value for v in event.summary.value}
    assert event.step == -3
    assert math.isnan(found.pop("nan"))
    assert found == {"inf": math.inf, "minus": -math.inf, "big": math.inf, "low": -math.inf}
    assert len(empty.summary.value) == 0


def test_file_name_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    writer = EventWriter(folder)
    (path,) = folder.iterdir()
    writer.close()
    writer.close()
    assert path.name.startswith("events.out.tfevents.")
    assert path.name.endswith(f".{socket.gethostname()}.{os.getpid()}")


def test_writes_are_buffered_and_flushed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(events.time, "monotonic", lambda: now)
    writer = EventWriter(tmp_path)
    assert len(read_events(tmp_path)) == 1  # the version is there at once
    writer.scalars(1, {"x": 1.0})
    assert len(read_events(tmp_path)) == 1
    now += 6
    writer.scalars(2, {"x": 2.0})
    assert len(read_events(tmp_path)) == 3
    writer.scalars(3, {"x": 3.0})
    writer.close()
    assert len(read_events(tmp_path)) == 4


def test_second_writer_of_the_same_second_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events.time, "time", lambda: 1_700_000_000.0)
    for step in (1, 2):
        writer = EventWriter(tmp_path)
        writer.scalars(step, {"x": float(step)})
        writer.close()
    found = [event.step for event in read_events(tmp_path) if event.HasField("summary")]
    assert found == [1, 2]
