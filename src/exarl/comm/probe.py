"""Measures one-sided access: in some MPI libraries a get returns only when its target calls MPI."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from exarl.comm.channel import Channel, meet
from exarl.comm.messages import Tag, decode, encode
from exarl.comm.window import WORD, Window

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

BUSY_S = 0.2


def one_sided_latency(
    channel: Channel, ranks: Sequence[int], targets: Sequence[int], busy: float = BUSY_S
) -> float:
    """Seconds that the first of ``ranks`` needs to read a word from a target while that computes for
    ``busy`` seconds without calling MPI; the maximum over all ``targets`` (those that the first rank
    passes). Collective over ``ranks``; all get the result."""
    reader = ranks[0]
    if channel.rank == reader:
        channel.send(encode(list(targets)), ranks[1:], Tag.PROBE_TARGETS)
        latency = max(_between(channel, reader, target, busy) for target in targets)
        channel.send(encode(latency), ranks[1:], Tag.PROBE_LATENCY)
        return latency
    if channel.rank in decode(channel.receive(reader, Tag.PROBE_TARGETS)[1], list[int])[0]:
        _between(channel, reader, channel.rank, busy)
    return decode(channel.receive(reader, Tag.PROBE_LATENCY)[1], float)[0]


def near_and_far(ranks: Sequence[int], here: Collection[int]) -> list[int]:
    """Of ``ranks``, the first that is ``here`` and the first that is not: memory on another machine
    is accessed in another way than on this one."""
    near = [rank for rank in ranks if rank in here]
    far = [rank for rank in ranks if rank not in here]
    return near[:1] + far[:1]


def _between(channel: Channel, reader: int, target: int, busy: float) -> float:
    """The latency between ``reader`` and ``target``, which both call this; the result on the reader."""
    # Meet by messages first: making a communicator keeps a core busy until the other rank is there.
    other = target if channel.rank == reader else reader
    channel.send(b"", other, Tag.PROBE_READY)
    channel.receive(other, Tag.PROBE_READY)
    world = channel.comm.Get_group()
    pair = channel.comm.Create_group(world.Incl([reader, target]))
    latency = _measure(pair, busy)
    pair.Free()
    return latency


def _measure(pair: Intracomm, busy: float) -> float:
    """The latency between the two ranks of ``pair``; the result on rank 0."""
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
        time.sleep(busy / 4)  # after this the target is certainly computing
        started = time.perf_counter()
        window.get(1, 0)
        latency = time.perf_counter() - started
    window.free()
    return latency
