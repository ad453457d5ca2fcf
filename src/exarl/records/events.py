"""TensorBoard event files, written without TensorBoard, TensorFlow or protobuf.

An event file is a sequence of TFRecords, each holding one ``Event`` message; the few fields needed
for scalars are encoded here by hand (``event.proto`` and ``summary.proto`` of TensorBoard).
"""

from __future__ import annotations

import functools
import math
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

_FLUSH_SECONDS = 5.0
_CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, bits reversed
_MASK_DELTA = 0xA282EAD8  # TFRecord stores a rotated, shifted checksum
_U32 = 0xFFFFFFFF
_U64 = 0xFFFFFFFFFFFFFFFF

# Keys of the fields, (number << 3) | wire type; wire types: 0 varint, 1 double, 2 bytes, 5 float.
_EVENT_WALL_TIME = b"\x09"  # Event.wall_time = 1, double
_EVENT_STEP = b"\x10"  # Event.step = 2, int64
_EVENT_FILE_VERSION = b"\x1a"  # Event.file_version = 3, string
_EVENT_SUMMARY = b"\x2a"  # Event.summary = 5, message
_SUMMARY_VALUE = b"\x0a"  # Summary.value = 1, repeated message
_VALUE_TAG = b"\x0a"  # Summary.Value.tag = 1, string
_VALUE_SIMPLE = b"\x15"  # Summary.Value.simple_value = 2, float


class EventWriter:
    """Appends scalars to a new event file in ``folder``, which is created where it is missing.

    Writes are buffered and reach the disk at calls at least five seconds apart and at ``close``. Use it
    from one thread. OSError when the disk is full or gone.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        # Append: a run resumed in the same process and second finds its own file.
        self._file = (folder / name).open("ab")
        self._heads: dict[str, bytes] = {}  # metric -> its encoded Summary.Value up to the number
        version = b"brain.Event:2"
        self._file.write(
            _record(_wall_time(None) + _EVENT_FILE_VERSION + _varint(len(version)) + version)
        )
        self.flush()

    def scalars(
        self, step: int, values: Mapping[str, float], wall_time: float | None = None
    ) -> None:
        """Write all of ``values`` as one event of ``step``; ``wall_time`` is Unix time, default now."""
        summary = b"".join([self._head(name) + _float32(v) for name, v in values.items()])
        self._file.write(
            _record(
                _wall_time(wall_time)
                + _EVENT_STEP
                + _varint(step & _U64)  # a negative int64 travels as its two's complement
                + _EVENT_SUMMARY
                + _varint(len(summary))
                + summary
            )
        )
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush and close the file; a second call does nothing."""
        self._file.close()

    def _head(self, name: str) -> bytes:
        """The bytes of a value that do not change from step to step: lengths and name."""
        head = self._heads.get(name)
        if head is None:
            tag = name.encode()
            value = _VALUE_TAG + _varint(len(tag)) + tag + _VALUE_SIMPLE
            head = _SUMMARY_VALUE + _varint(len(value) + 4) + value
            self._heads[name] = head
        return head


def crc32c(data: bytes) -> int:
    """The CRC-32C (Castagnoli) checksum of ``data``."""
    table = _crc_table()
    crc = _U32
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _U32


@functools.cache  # built on first use, so that importing costs nothing
def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        entry = byte
        for _ in range(8):
            entry = (entry >> 1) ^ (_CASTAGNOLI if entry & 1 else 0)
        table.append(entry)
    return tuple(table)


def _record(message: bytes) -> bytes:
    """One TFRecord: length, checksum of the length, message, checksum of the message."""
    length = struct.pack("<Q", len(message))
    return b"".join((length, _masked_crc(length), message, _masked_crc(message)))


def _masked_crc(data: bytes) -> bytes:
    crc = crc32c(data)
    rotated = ((crc >> 15) | (crc << 17)) & _U32
    return struct.pack("<I", (rotated + _MASK_DELTA) & _U32)


def _varint(number: int) -> bytes:
    """``number`` >= 0 in groups of seven bits, lowest first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _wall_time(wall_time: float | None) -> bytes:
    return _EVENT_WALL_TIME + struct.pack("<d", time.time() if wall_time is None else wall_time)


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # finite, but beyond float32
        return struct.pack("<f", math.copysign(math.inf, value))
