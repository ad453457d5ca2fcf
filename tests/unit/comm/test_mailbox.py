"""Messages by calls, and a team of learners that has nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from exarl.comm.mailbox import Mailbox
from exarl.comm.team import MailTeam


def mailboxes(size: int) -> list[Mailbox]:
    made: list[Mailbox] = []
    doors = [lambda s, t, p, rank=rank: made[rank].deliver(s, t, p) for rank in range(size)]
    made.extend(Mailbox(rank, size, doors) for rank in range(size))
    return made


def test_messages_keep_their_order_and_their_tag() -> None:
    a, b = mailboxes(2)
    for payload in (b"one", b"two"):
        a.send(payload, 1, tag=7)
    a.post(b"other", 1, tag=8)
    assert b.poll(tag=9) is None and b.poll(1, tag=7) is None
    found = [b.receive(tag=8), b.receive(0, tag=7), b.receive(tag=7)]
    assert [(rank, bytes(data)) for rank, data in found] == [
        (0, b"other"),
        (0, b"one"),
        (0, b"two"),
    ]


def test_what_rank_0_shares_reaches_every_rank() -> None:
    data = {"seed": 2**127, "rates": [0.5, float("inf")], "place": None}
    boxes = mailboxes(3)
    assert [box.share(data if box.rank == 0 else None, tag=5) for box in boxes] == [data] * 3


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_team_averages_by_weight(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(size, 50)).astype(np.float32)
    weights = rng.integers(0, 3, size).astype(float)
    weights[0] = 1.0
    teams = [MailTeam(box) for box in mailboxes(size)]
    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(lambda i: teams[i].average(vectors[i], weights[i]), range(size)))
    for mean in found:
        np.testing.assert_allclose(mean, np.average(vectors, 0, weights), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(mean, found[0])
