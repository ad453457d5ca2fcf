"""Several critics evaluated at once, with dropout and with random subsets of them as targets.

Random subsets: Chen et al. 2021 (REDQ, arXiv 2101.05982); dropout: Hiraoka et al. 2022 (DroQ,
arXiv 2110.02034).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from exarl.agents.algorithm import Normals, part
from exarl.errors import ConfigError
from exarl.learning.shuffle import hashed
from exarl.networks.network import Network
from exarl.types import Array, Batch, Namespace, Params

KEYS = "critic_keys"
"""The random numbers of a batch [N, 1] that subsets and masks are made of."""

TARGET, LEARNED, CLIMBED = range(3)
"""What critics are evaluated for: as targets, to be learned, to be climbed by a policy. Each has masks
of its own."""


def critic_names(count: int) -> tuple[str, ...]:
    """``q1``, ``q2`` and so on."""
    return tuple(f"q{number}" for number in range(1, count + 1))


@dataclass(frozen=True)
class Critics:
    """Networks of one form; ``in_target`` of them, drawn at random for each update, make a target."""

    networks: Mapping[str, Network]
    in_target: int

    def outputs(
        self,
        xp: Namespace,
        params: Params,
        batch: Batch,
        use: int,
        observations: Array,
        actions: Array | None,
    ) -> list[Array]:
        """The outputs [N, outputs] of every critic, or of those of the update's subset for a target.

        Masks and subsets are made of the batch's ``KEYS``; a batch without them has no dropout.
        """
        members = [part(params, name) for name in self.networks]
        keys = batch.get(KEYS)
        if keys is not None:
            bits = keys[:, 0].view(np.uint32)
            members = [
                {**own, **self._masks(xp, bits, use * len(members) + number)}
                for number, own in enumerate(members)
            ]
        network = next(iter(self.networks.values()))
        more = () if actions is None else (actions,)  # a user's own network need not take them

        def one(own: Params) -> Array:
            return network.apply(xp, own, observations, *more)

        if use == TARGET and self._draws_subset:
            assert keys is not None
            places = hashed(xp, xp.arange(len(members), dtype=np.uint32), bits[0]).argsort()
            stacked = _stacked(xp, members)
            return _each(
                xp, one, {name: a[places[: self.in_target]] for name, a in stacked.items()}
            )
        if len(members) <= 2 or xp is np:
            return [one(own) for own in members]
        return _each(xp, one, _stacked(xp, members))

    def draws(self, rng: Normals, updates: int, batch: int) -> dict[str, Array]:
        """The keys, where they are needed; see ``Algorithm.draws``."""
        if not (self._draws_subset or self._dropped):
            return {}
        return {KEYS: rng.standard_normal((updates, batch, 1), np.float32)}

    def _masks(self, xp: Namespace, bits: Array, number: int) -> dict[str, Array]:
        """The masks of one critic by name, [N, units]: 0, or the factor that keeps the mean."""
        rate, masks = self._rate, {}
        for layer, (name, units) in enumerate(self._dropped.items()):
            row = hashed(xp, bits, xp.uint32(number * len(self._dropped) + layer + 1))
            drawn = hashed(xp, xp.arange(units, dtype=np.uint32), row[:, None])
            kept = drawn >= xp.uint32(int(rate * 2**32))
            masks[name] = xp.where(kept, np.float32(1 / (1 - rate)), np.float32(0))
        return masks

    @property
    def _draws_subset(self) -> bool:
        return self.in_target < len(self.networks)

    @cached_property
    def _dropped(self) -> Mapping[str, int]:
        return dropped_by(next(iter(self.networks.values())))

    @property
    def _rate(self) -> float:
        return float(getattr(next(iter(self.networks.values())), "dropout", 0.0))


def check_subset(critics: int, in_target: int) -> None:
    """ConfigError when there are fewer critics than a target takes."""
    if in_target > critics:
        raise ConfigError(
            f"critics_in_target={in_target} is more than there are: critics={critics}"
        )


def dropped_by(network: Network) -> Mapping[str, int]:
    """The masks that a network takes, and their units; a user's own need not have the attribute."""
    return dict(getattr(network, "dropped", {}))


def _stacked(xp: Namespace, members: Sequence[Params]) -> dict[str, Array]:
    """The parameters of several networks along a first axis."""
    return {name: xp.stack([own[name] for own in members]) for name in members[0]}


def _each(xp: Namespace, one: Callable[[Params], Array], stacked: Params) -> list[Array]:
    """``one`` of every network: in JAX all of them as one program over a further axis."""
    if xp is not np:
        from exarl.agents.compiled import jax

        return list(jax.vmap(one)(stacked))
    count = len(next(iter(stacked.values())))
    return [one({name: a[number] for name, a in stacked.items()}) for number in range(count)]
