"""Is one-sided progress real? Some MPI libraries need the target to call MPI before a get returns."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from exarl.comm.messages import pack_json, unpack_json
from exarl.comm.mpi import Channel, meet
from exarl.comm.window import WORD, Window

BUSY_S = 0.2
_ANSWER_TAG, _READY_TAG, _TARGETS_TAG = 51, 52, 53


def one_sided_latency(
    channel: Channel, ranks: Sequence[int], targets: Sequence[int], busy: float = BUSY_S
) -> float:
    """Seconds that the first of ``ranks`` needs to read a word of a target, another of them, while
    that computes for ``busy`` seconds without calling MPI: the longest of all ``targets``, where those
    that the first rank gives count. Each of ``ranks`` calls it and gets the result."""
    reader = ranks[0]
    if channel.rank == reader:
        channel.send(pack_json(list(targets)), ranks[1:], _TARGETS_TAG)
        latency = max(_between(channel, reader, target, busy) for target in targets)
        channel.send(pack_json(latency), ranks[1:], _ANSWER_TAG)
        return latency
    if channel.rank in unpack_json(channel.receive(reader, _TARGETS_TAG)[1]):
        _between(channel, reader, channel.rank, busy)
    return float(unpack_json(channel.receive(reader, _ANSWER_TAG)[1]))


def near_and_far(ranks: Sequence[int], here: Collection[int]) -> list[int]:
    """Of ``ranks``, the first that is ``here`` and the first that is not: memory on another machine
    is reached in another way than on this one."""
    near = [rank for rank in ranks if rank in here]
    far = [rank for rank in ranks if rank not in here]
    return near[:1] + far[:1]


def _between(channel: Channel, reader: int, target: int, busy: float) -> float:
    """What ``reader`` and ``target`` find; the result on the reader."""
    # By messages, since a communicator is made by waiting with a busy core for the one that is late.
    other = target if channel.rank == reader else reader
    channel.send(b"", other, _READY_TAG)
    channel.receive(other, _READY_TAG)
    world = channel.comm.Get_group()
    pair = channel.comm.Create_group(world.Incl([reader, target]))
    latency = _measure(pair, busy)
    pair.Free()
    return latency


def _measure(pair: Any, busy: float) -> float:
    """Between the two ranks of ``pair``; the result on rank 0."""
    window = Window(pair, WORD)
    latency = 0.0
    if pair.rank == 0:
        window.get(1, 0)  # the first access may open a connection
    meet(pair)
    if pair.rank == 1:
        end = time.perf_counter() + busy
        while time.perf_counter() < end:
            pass
    else:
        time.sleep(busy / 4)  # by now the target is certainly computing
        started = time.perf_counter()
        window.get(1, 0)
        latency = time.perf_counter() - started
    window.free()
    return latency
