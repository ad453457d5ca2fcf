"""Random streams that belong to environments, not to ranks, and exploration schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from exarl.learning.distributions import is_allowed, uniform_among
from exarl.types import Array, Namespace

LEARNER, EXPLORATION, EPISODE, EVALUATION, RESTART, IDENTITY = range(6)
"""The first number of a spawn key: the kind of stream."""


def generator(seed: int, *key: int) -> np.random.Generator:
    """The random stream that belongs to ``key``; streams of different keys are independent."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def episode_seed(seed: int, env_id: int, episode: int, kind: int = EPISODE) -> int:
    """The seed of one episode of one environment, so that any episode can be played again alone."""
    sequence = np.random.SeedSequence(seed, spawn_key=(kind, env_id, episode))
    return int(sequence.generate_state(1)[0] >> 1)


class Streams:
    """One uniform random stream for each of B environments, drawn in chunks.

    What environment i sees depends on the seed, on i and on how much was drawn; not on its rank or on
    the other environments there. ``position`` is the whole state.
    """

    _CHUNK = 512

    def __init__(self, seed: int, env_ids: Sequence[int], kind: int = EXPLORATION) -> None:
        self._seed, self._env_ids = seed, env_ids
        self._generators = [generator(seed, kind, env_id) for env_id in env_ids]
        self._origins = [g.bit_generator.state for g in self._generators]
        self._chunk = np.empty((len(env_ids), 0))
        self._next = 0
        self._drawn = 0

    def __len__(self) -> int:
        return len(self._generators)

    def apart(self, slot: int, episode: int) -> Streams:
        """A stream for the repeated step of this episode; these streams do not advance."""
        key = episode_seed(self._seed, self._env_ids[slot], episode, RESTART)
        return Streams(key, [self._env_ids[slot]])

    @property
    def position(self) -> int:
        """How many numbers each stream has given."""
        return self._drawn - self._chunk.shape[1] + self._next

    def seek(self, position: int) -> None:
        """Continue as if ``position`` numbers had been given."""
        for g, origin in zip(self._generators, self._origins, strict=True):
            g.bit_generator.state = origin
            g.bit_generator.advance(position)  # type: ignore[attr-defined]
        self._chunk, self._next, self._drawn = self._chunk[:, :0], 0, position

    def uniform(self, count: int) -> np.ndarray:
        """The next ``count`` numbers in [0, 1) of every stream, [B, count]."""
        if self._next + count > self._chunk.shape[1]:
            fresh = max(count, self._CHUNK)
            kept = self._chunk[:, self._next :]
            drawn = np.stack([g.random(fresh) for g in self._generators])
            self._chunk, self._next = np.concatenate([kept, drawn], 1), 0
            self._drawn += fresh
        taken: np.ndarray = self._chunk[:, self._next : self._next + count]
        self._next += count
        return taken

    def normal(self, count: int) -> np.ndarray:
        """The next ``count`` standard normal numbers of every stream, [B, count]."""
        radius, angle = np.split(self.uniform(2 * count), 2, axis=1)
        drawn: np.ndarray = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)
        return drawn


class Together(Streams):
    """The streams of several groups of environments, in their order; drawing advances all of them."""

    def __init__(self, parts: Sequence[Streams]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def uniform(self, count: int) -> np.ndarray:
        return np.concatenate([part.uniform(count) for part in self._parts])


def epsilon_end(start: float, end: float, decay: float, linear_steps: int) -> float:
    """Steps after which ``epsilon_at`` stays at ``end``; 0 where it never changes."""
    if linear_steps:
        return float(linear_steps) if start != end else 0.0
    if start <= end:
        return 0.0
    if decay == 1 or end == 0:
        return math.inf
    return math.ceil(math.log(end / start) / math.log(decay))


def epsilon_at(
    steps: float | Array,
    start: float | Array,
    end: float | Array,
    decay: float | Array,
    linear_steps: int,
    xp: Namespace = np,
) -> Array:
    """Exploration after ``steps``: linear over ``linear_steps`` where given, else geometric."""
    if linear_steps:
        return start + (end - start) * xp.minimum(1.0, steps / linear_steps)
    return xp.maximum(xp.minimum(start, end), start * decay**steps)


def epsilon_greedy(xp: Namespace, q_values: Array, epsilon: float | Array, uniform: Array) -> Array:
    """Greedy actions [B] of ``q_values`` [B, A], random where ``uniform[:, 0] < epsilon``."""
    greedy = q_values.argmax(-1)
    explore = uniform[:, 0] < epsilon
    # much cheaper than any() on a few environments
    if isinstance(explore, np.ndarray) and True not in explore.tobytes():
        return greedy
    return xp.where(explore, (uniform[:, 1] * q_values.shape[-1]).astype(greedy.dtype), greedy)


def epsilon_greedy_among(
    xp: Namespace, q_values: Array, epsilon: float | Array, uniform: Array
) -> Array:
    """``epsilon_greedy`` for what ``distributions.among`` gives: never an action that is forbidden, and
    where there are factors all of them at once, with a uniform number for each."""
    explore, factors = uniform[:, 0] < epsilon, q_values.ndim > 2
    explorers = explore.tobytes() if isinstance(explore, np.ndarray) else None
    if explorers is not None and True not in explorers:
        return q_values.argmax(-1)
    drawn = uniform_among(xp, is_allowed(q_values), uniform[:, 1:] if factors else uniform[:, 1])
    if explorers is not None and False not in explorers:
        return drawn
    return xp.where(explore[:, None] if factors else explore, drawn, q_values.argmax(-1))


def ou_noise(
    xp: Namespace,
    noise: Array,
    theta: float | Array,
    deviation: float | Array,
    normal: Array,
) -> Array:
    """An Ornstein-Uhlenbeck process one step on: what it forgets, ``theta``, is replaced by as much
    fresh noise as keeps its stationary standard deviation at ``deviation``."""
    kept = 1 - theta
    return kept * noise + deviation * xp.sqrt(1 - kept**2) * normal


def either(
    xp: Namespace, condition: bool | Array, yes: Callable[[], Array], no: Callable[[], Array]
) -> Array:
    """One of two results, chosen by a single condition; NumPy computes only that one."""
    if xp is np:
        return yes() if condition else no()
    return xp.where(condition, yes(), no())


def json_state(rng: np.random.Generator) -> dict[str, Any]:
    """The generator's state as plain numbers."""
    return dict(rng.bit_generator.state)


def restore_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Set what ``json_state`` gave."""
    rng.bit_generator.state = state
