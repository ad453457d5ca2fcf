"""The parameters of optimisers, and the step size as a function of how far training is; no JAX."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from exarl.config import param
from exarl.errors import ConfigError
from exarl.types import Array, Namespace

TAKES: Mapping[str, tuple[str, ...]] = {
    "adam": ("adam_eps", "betas"),
    "adamw": ("adam_eps", "betas", "weight_decay"),
    "rmsprop": ("adam_eps",),
    "sgd": (),
    "nadam": ("adam_eps", "betas"),
    "radam": ("adam_eps", "betas"),
    "lion": ("betas", "weight_decay"),
    "adabelief": ("adam_eps", "betas"),
}
"""The numbers that each optimiser has beside its step size, as parameters."""
NEEDED = ("betas", "weight_decay")
"""Those that an optimiser must have where they are given; an ``adam_eps`` that it has not is left out,
since agents and packaged settings have one for their own optimiser."""


@dataclass(frozen=True)
class OptimizerConfig:
    """Parameters of the optimisers of an algorithm."""

    learning_rate: float = param(1e-3, "step size of the optimiser", gt=0)
    learning_rate_end: float | None = param(
        None, "step size at the end of its schedule; null: a tenth of the one it begins with", ge=0
    )
    learning_rate_fraction: float = param(
        0.0, "if not 0: it falls linearly to its end over this part of total_steps", ge=0, le=1
    )
    learning_rate_updates: int = param(
        0, "if not 0: the step size falls linearly to its end over N updates instead", ge=0
    )
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd", "nadam", "radam", "lion", "adabelief"] = (
        param("adam", "optimiser, by its name in optax")
    )
    adam_eps: float | None = param(
        None,
        "what the optimiser adds to the root of squared gradients, if it does; null: its own number",
        gt=0,
    )
    betas: tuple[float, float] | None = param(
        None, "how slowly the optimiser's two averages forget, [b1, b2]; null: its own", ge=0, lt=1
    )
    weight_decay: float | None = param(
        None, "how much the optimiser draws matrices towards 0; null: its own number", ge=0
    )
    max_grad_norm: float | None = param(10.0, "clip the gradient's norm; null: do not", gt=0)


class ScheduleEnd(NamedTuple):
    """Where a schedule ends: after a number of environment steps, or of updates."""

    what: str
    value: float
    """NaN where several agents have different ones."""
    steps: float = math.inf
    updates: float = math.inf
    parameters: tuple[str, ...] = ()
    """Those that decide it."""

    def told(self, steps: int, total: int | None) -> str:
        """A line for the user."""
        value = "" if math.isnan(self.value) else f", {self.value:.3g},"
        of = f" of {total:,}" if total is not None else ""
        return f"{self.what} has reached its end{value} at step {steps:,}{of}"


def follows_run(config: OptimizerConfig, swept: Collection[str] = ()) -> bool:
    """Whether step sizes depend on the part of ``total_steps`` that is made."""
    return bool(config.learning_rate_fraction) or "learning_rate_fraction" in swept


def check_optimizer(
    config: OptimizerConfig, total_steps: int | None, swept: Collection[str] = ()
) -> None:
    """ConfigError where a number has no effect; ``swept`` names those that a population varies."""
    takes = TAKES[config.optimizer]
    for name in TAKES["adamw"]:
        given = name in NEEDED and getattr(config, name) is not None
        if name not in takes and (name in swept or given):
            others = ", ".join(known for known, own in TAKES.items() if name in own)
            raise ConfigError(
                f"optimizer '{config.optimizer}' has no {name}: leave it out, or choose {others}"
            )
    if not follows_run(config, swept):
        return
    if total_steps is None and "learning_rate_fraction" in swept:
        raise ConfigError("learning_rate_fraction is a part of total_steps: set that as well")
    if config.learning_rate_updates:
        raise ConfigError(
            "learning_rate_fraction and learning_rate_updates are two schedules of the step size:"
            " set one of them to 0"
        )


def fallen(first: float | Array, end: float | Array, done: float | Array) -> float | Array:
    """The step size when the part ``done`` of its schedule, 0 to 1, is over."""
    return (first - end) * (1 - done) + end


def end_of(first: float | Array, end: float | Array | None) -> float | Array:
    """The step size at the end of a schedule."""
    return 0.1 * first if end is None else end


def done_of_run(xp: Namespace, fraction: float | Array, progress: float | Array) -> float | Array:
    """The part of a schedule that is over, when it takes this fraction of the run; 0: none."""
    some = xp.maximum(fraction, 1e-9)
    return xp.where(fraction > 0, xp.minimum(1.0, progress / some), 0.0)


def step_size_end(
    config: OptimizerConfig, total_steps: int | None, swept: Collection[str]
) -> ScheduleEnd | None:
    """Where the schedule of the step size ends, if there is one and all of a population follow it."""
    steps, updates = math.inf, float(config.learning_rate_updates or math.inf)
    if config.learning_rate_fraction and total_steps is not None:
        steps = config.learning_rate_fraction * total_steps
    if min(steps, updates) == math.inf or "learning_rate_fraction" in swept:
        return None
    value = end_of(config.learning_rate, config.learning_rate_end)
    if {"learning_rate", "learning_rate_end"} & set(swept):
        value = math.nan
    return ScheduleEnd("the step size", float(value), steps, updates)


def ended_schedules(
    config: OptimizerConfig,
    others: Sequence[ScheduleEnd],
    total_steps: int | None,
    swept: Collection[str],
    steps: int,
    updates: int,
) -> dict[str, str]:
    """Lines for the user on the schedules, that of the step size and ``others``, which are over after
    ``steps`` and ``updates``, by what follows them."""
    if config.learning_rate_fraction and total_steps is None:
        rate = f"{config.learning_rate:.3g}"
        return {"the step size": f"the step size stays {rate}: its schedule needs total_steps"}
    ends = [end for end in others if not {*end.parameters} & {*swept}]
    if (own := step_size_end(config, total_steps, swept)) is not None:
        ends.append(own)
    over = [end for end in ends if steps >= end.steps or updates >= end.updates]
    return {end.what: end.told(steps, total_steps) for end in over}
