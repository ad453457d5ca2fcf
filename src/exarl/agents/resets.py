"""Periodic resets: networks begin again while the replay stays.

Nikishin et al. 2022 (arXiv 2205.07802).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from exarl.agents.algorithm import Hyper, TrainState
from exarl.agents.experience import Experience
from exarl.agents.offpolicy import OffPolicyConfig
from exarl.errors import ConfigError
from exarl.types import Arrays, Metrics, Params

if TYPE_CHECKING:
    from exarl.agents.engine import Engine

METRIC = "resets"


def columns(config: object) -> tuple[str, ...]:
    """The metric, where there are resets."""
    return (METRIC,) if getattr(config, "reset_interval", 0) else ()


def check_networks(config: object, params: Params) -> None:
    """ConfigError when a network to be reset is none of these."""
    known = sorted({name.partition("/")[0] for name in params})
    chosen: tuple[str, ...] = getattr(config, "reset_networks", ())
    if unknown := [name for name in chosen if name not in known]:
        raise ConfigError(
            f"reset_networks has no '{unknown[0]}' to reset; there are {', '.join(known)}"
        )


def resets_before(interval: int, updates: int) -> int:
    """How many resets come before the last of these updates: one after each ``interval``."""
    return max(updates - 1, 0) // interval


class Resetting:
    """An experience whose learner is reset before the updates of a block in which a reset falls due.

    What reset n draws depends on the seed and on n, so that a restored learner and all learners of a
    team make the same ones.
    """

    joins_blocks = False  # a reset falls between two of them

    def __init__(
        self,
        experience: Experience,
        engine: Engine,
        hyper: Hyper,
        first: Callable[[int], Arrays],
    ) -> None:
        config = engine.algorithm.config
        assert isinstance(config, OffPolicyConfig)
        self._experience, self._engine, self._hyper, self._first = experience, engine, hyper, first
        self._interval, self._networks = config.reset_interval, config.reset_networks

    def ready(self, rows: Arrays | None) -> bool:
        return self._experience.ready(rows)

    def add(self, rows: Arrays | None) -> None:
        self._experience.add(rows)

    def learn(
        self,
        state: TrainState,
        rows: Arrays | None,
        updates: int,
        made: int,
        *,
        joined: bool = False,
    ) -> tuple[TrainState, Metrics]:
        number = resets_before(self._interval, made + updates)
        if number > resets_before(self._interval, made):
            state = reset(self._engine, self._hyper, state, self._first(number), self._networks)
        state, metrics = self._experience.learn(state, rows, updates, made)
        return state, {**metrics, METRIC: float(number)}

    def state(self) -> Arrays:
        return self._experience.state()

    def restore(self, arrays: Arrays) -> None:
        self._experience.restore(arrays)


def reset(
    engine: Engine, hyper: Hyper, state: TrainState, first: Arrays, networks: tuple[str, ...]
) -> TrainState:
    """The state with these networks (none: all) as they are in ``first``, their targets too, and the
    optimisers that move them as before the first update. Counts and normalisers go on."""
    from exarl.agents.compiled import to_device

    def chosen(name: str) -> bool:
        return not networks or name.partition("/")[0] in networks

    params = {n: first[n] if chosen(n) else array for n, array in state.params.items()}
    begun = engine.init(hyper, params, state.norm)
    again = {loss.optimizer for loss in engine.algorithm.losses if any(map(chosen, loss.trains))}
    optimizer = {**state.optimizer, **{name: begun.optimizer[name] for name in again}}
    target = {n: begun.target[n] if chosen(n) else array for n, array in state.target.items()}
    renewed: TrainState = to_device(
        state._replace(params=params, target=target, optimizer=optimizer)
    )
    return renewed
