"""Blocks as algorithms see them: on the host, or being compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from exarl.types import ABSENT, Array, Arrays, Namespace, Steps

KNOWN = "known"
"""Among the rows of a block: which of them there are. A replay does not keep the others."""


class Rewarded(Protocol):
    """Consecutive steps: a block, or ``exarl.types.Steps``."""

    @property
    def rewards(self) -> Array: ...
    @property
    def terminated(self) -> Array: ...
    @property
    def truncated(self) -> Array: ...


class AnyBlock(Rewarded, Protocol):
    """A block: ``exarl.types.Block`` on the host, arrays being compiled in the fused program."""

    @property
    def observations(self) -> Array: ...
    @property
    def actions(self) -> Array: ...
    @property
    def recorded(self) -> Mapping[str, Array]: ...
    @property
    def lead(self) -> Steps | None: ...
    @property
    def steps(self) -> int: ...
    @property
    def ended(self) -> Array: ...

    def next_observations(self) -> Array: ...


def present(xp: Namespace, block: AnyBlock) -> Array:
    """[T, B]: which steps there were; all of them unless agents come and go."""
    if ABSENT in block.recorded:
        return ~block.recorded[ABSENT]
    return xp.ones(block.rewards.shape, bool)


def steps_of(xp: Namespace, block: AnyBlock) -> Steps:
    """The steps of a block, after those that lead to it: [L + T, B, ...]."""
    own = Steps(
        block.observations[:-1],
        block.actions,
        block.rewards,
        block.terminated,
        block.truncated,
        block.next_observations(),
        present(xp, block),
    )
    if block.lead is None:
        return own
    return Steps(*(xp.concatenate(parts) for parts in zip(block.lead, own, strict=True)))


def on_host(arrays: Mapping[str, Array]) -> Arrays:
    """Arrays that are NumPy's already, for the type checker."""
    return dict(arrays)  # type: ignore[arg-type]
