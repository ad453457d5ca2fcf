"""Windows of n steps, followed one by one: the oracle of what an agent's replay is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from exarl.types import Array, Block

Row = tuple[tuple[float, ...], float, float, float, tuple[float, ...]]
"""Observation, action, reward, discount, next observation."""
NAMES = ("observation", "action", "reward", "discount", "next_observation")


class Made:
    """One step: where it began and led to. It is the last of its episode if the next step begins
    elsewhere, for whatever reason."""

    def __init__(self, block: Any, following: Array, t: int, b: int) -> None:
        self.begun, self.led = plain(block.observations[t, b]), plain(following[t, b])
        self.action, self.reward = plain(block.actions[t, b]), float(block.rewards[t, b])
        self.terminated = bool(block.terminated[t, b])


def plain(array: Any) -> Any:
    found = np.asarray(array, float).ravel().tolist()
    return tuple(found) if len(found) > 1 else found[0]


def made_in(blocks: Iterable[Any], slot: int) -> list[Made]:
    """The steps of one environment, in their order."""
    found = []
    for block in blocks:
        following = block.next_observations()
        found += [Made(block, following, t, slot) for t in range(len(block.rewards))]
    return found


def followed(steps: Sequence[Made], n: int, gamma: float) -> list[Row]:
    """The windows of n steps that lie within these, each followed to the end of its episode."""
    found = []
    for start in range(len(steps) - n + 1):
        total, discount = 0.0, 1.0
        for k in range(n):
            now = steps[start + k]
            total, discount = total + discount * now.reward, discount * gamma
            over = k + 1 < n and steps[start + k + 1].begun != now.led
            if now.terminated or over:
                break
        discount *= not now.terminated
        found.append((steps[start].begun, steps[start].action, total, discount, now.led))
    return found


def expected_rows(blocks: Sequence[Any], n: int, gamma: float) -> list[Row]:
    """What a replay is to be given of the blocks of an actor, in any order."""
    width = blocks[0].rewards.shape[1]
    return sorted(row for b in range(width) for row in followed(made_in(blocks, b), n, gamma))


def listed(rows: Mapping[str, Any]) -> list[Row]:
    """Rows of a replay, without those that are not known."""
    count = len(rows["action"])
    known = np.asarray(rows.get("known", np.ones(count, bool)))
    columns = [np.asarray(rows[name])[known] for name in NAMES]
    return sorted(tuple(map(plain, row)) for row in zip(*columns, strict=True))  # type: ignore[misc]


def given_rows(agent: Any, blocks: Iterable[Block]) -> list[Row]:
    """What the agent's replay is given of these blocks, in any order."""
    found = [row for b in blocks for row in listed(agent.algorithm.rows(np, agent.hyper, b))]
    return sorted(found)


def assert_alike(found: Sequence[Row], expected: Sequence[Row]) -> None:
    """The same rows, but for the rounding of their rewards."""
    one, other = (np.array([np.hstack(row) for row in rows]) for rows in (found, expected))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
