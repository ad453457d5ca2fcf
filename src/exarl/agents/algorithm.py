"""What an algorithm is: a frozen object of pure functions over ``xp``, which the engine runs.

``xp`` is NumPy on an actor and ``jax.numpy`` on a learner. ``hyper`` holds the algorithm's real-valued
parameters by name: plain numbers, or arrays where a population of agents is trained with different
ones. What decides the shape of the computation (switches, counts) is read from ``config``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from exarl.agents.blocks import AnyBlock, Rewarded
from exarl.agents.optimizers import OptimizerConfig, ScheduleEnd
from exarl.config import param
from exarl.learning.distributions import among
from exarl.networks.network import Network
from exarl.types import (
    Array,
    Arrays,
    ArraySpec,
    Batch,
    EnvSpec,
    Memory,
    Metrics,
    Namespace,
    Params,
    PyTree,
)

Hyper: TypeAlias = "Mapping[str, float | Array]"
"""Real-valued parameters by name; one that is None in the configuration is absent."""

Value: TypeAlias = "Callable[[Namespace, Hyper, Params, TrainState, Batch], tuple[Array, Metrics]]"
"""A loss: ``(xp, hyper, params, state, batch)`` -> its value and metrics. Gradients flow through
``params`` alone, and only through those the loss trains; ``state`` is as it was before the update.
Metrics with names of parameters are running moments after the batch (``agents.running``)."""


@dataclass(frozen=True)
class AlgorithmConfig(OptimizerConfig):
    """Parameters that all algorithms have."""

    gamma: float = param(0.99, "discount factor", ge=0, le=1)
    reward_scale: float = param(
        1.0, "factor on every reward; learning is best when values are about 10", gt=0
    )
    reward_clip: float | None = param(
        None, "cut rewards off at +- this, once they are normalised and scaled; null: do not", gt=0
    )
    normalize_rewards: bool = param(
        False,
        "divide rewards by the running standard deviation of the discounted return, before"
        " reward_scale and reward_clip",
    )
    normalize_observations: bool = param(
        False,
        "observations as deviations from their running mean, in standard deviations; images are left"
        " as they are",
    )
    precision: Literal["float32", "bfloat16"] = param(
        "float32",
        "numbers that the learner's networks compute with; parameters, optimiser, targets and losses"
        " are float32 always, and so is acting",
    )


class TrainState(NamedTuple):
    """Everything that updates change; all of it is stored in a checkpoint."""

    params: Params
    target: Params  # the copy that lags behind; empty where there is none
    optimizer: dict[str, PyTree]  # optax's state, by the name of the optimiser
    updates: Array  # int32, how many were made
    norm: dict[str, Array]  # mean and deviation of observations and returns, where they are used
    halted: Array | None = None  # whether the rest of a block's updates is skipped
    progress: Array | None = None  # part of total_steps made before a block, where rates follow it

    @property
    def stored(self) -> TrainState:
        """What a checkpoint has of it: not the progress, which a longer run counts otherwise."""
        return self._replace(progress=None)


@dataclass(frozen=True)
class Loss:
    """One loss, and the parameters that follow its gradient."""

    trains: tuple[str, ...]
    """Networks, and parameters that belong to none."""
    value: Value
    metrics: tuple[str, ...]
    """Names of the numbers it reports."""
    optimizer: str
    """Losses with the same one are clipped together and have one step size."""
    learning_rate: str = "learning_rate"
    """The parameter that is its step size, if it has a value; else ``learning_rate``."""
    every: int = 1
    """Its optimiser steps at every n-th update only, beginning with the first."""


@dataclass(frozen=True)
class EarlyStop:
    """Skip the rest of a block's updates once a metric, averaged over the team, exceeds the limit."""

    metric: str
    limit: float | Array


class Noise(Protocol):
    """Random numbers for exploration, [B, count]."""

    def uniform(self, count: int) -> Array: ...

    def normal(self, count: int) -> Array: ...


class Normals(Protocol):
    """Random numbers for updates."""

    def standard_normal(self, shape: tuple[int, ...], dtype: type[np.float32]) -> Array: ...


class Acting(NamedTuple):
    """What a policy acts with."""

    forward: Callable[[str, Array, Memory | None], tuple[Array, Memory]]
    """Outputs of a network by name for observations, and the memory after them."""
    now: Hyper
    """The schedules."""
    others: Params
    """Parameters that belong to no acting network."""
    normalize: Callable[[Array], Array]
    """Observations as the networks see them."""


C_co = TypeVar("C_co", bound=AlgorithmConfig, covariant=True)


@dataclass(frozen=True)
class Algorithm(ABC, Generic[C_co]):
    """Pure functions: what acts, what is learned from a block, and which losses are descended.

    Parameters are flat: ``"policy/0/w"`` is array ``0/w`` of network ``policy``.
    """

    spec: EnvSpec
    config: C_co
    networks: Mapping[str, Network]

    acts_with: ClassVar[tuple[str, ...]] = ("policy",)
    """The networks that acting needs; the first one makes the greedy action."""
    recurrent: ClassVar[bool] = False
    """Whether it can learn with a network that has memory."""
    uses_replay: ClassVar[bool] = False
    """Whether it learns from a replay; else from each block once."""
    drops_out: ClassVar[bool] = False
    """Whether its losses draw the masks of networks with dropout."""
    follows_batches: ClassVar[bool] = False
    """Whether its losses report the running moments of networks that normalise batches."""

    # -- parameters ---------------------------------------------------------------------------------

    def init(self, rng: np.random.Generator, hyper: Hyper) -> Arrays:
        """The parameters that training begins with."""
        return {
            f"{part}/{name}": array
            for part, network in self.networks.items()
            for name, array in network.init(rng).items()
        }

    def target(self, params: Params) -> Params:
        """The parameters of which a copy lags behind."""
        return {}

    # -- acting -------------------------------------------------------------------------------------

    @property
    def recorded(self) -> Mapping[str, ArraySpec]:
        """What is recorded beside each action."""
        return {}

    @property
    def memory(self) -> Mapping[str, ArraySpec]:
        """What the policy remembers of each environment."""
        return memory_of(self.networks[self.acts_with[0]])

    @property
    def greedy(self) -> slice:
        """Which outputs of the acting network make the greedy action."""
        return slice(None)

    @property
    def averages(self) -> int:
        """The greedy action is made of the means of this many of these outputs each."""
        return 1

    @property
    def squashed(self) -> bool:
        """Whether they pass through tanh."""
        return False

    @abstractmethod
    def act(
        self,
        xp: Namespace,
        hyper: Hyper,
        acting: Acting,
        observations: Array,
        rng: Noise | None,
        memory: Memory | None,
    ) -> tuple[Array, dict[str, Array], Memory]:
        """Actions [B], what is recorded with them, and the memory after them.

        Without ``rng`` it is the greedy policy.
        """

    def acting_params(self, params: Params, target: Params) -> dict[str, Array]:
        """The parameters that acting needs."""
        parts = tuple(f"{part}/" for part in self.acts_with)
        return {name: array for name, array in params.items() if name.startswith(parts)}

    def schedules(self, xp: Namespace, hyper: Hyper, steps: float | Array) -> dict[str, Array]:
        """Numbers that actors need and that change with the environment steps made."""
        return {}

    def schedule_ends(self) -> tuple[ScheduleEnd, ...]:
        """The ends of all schedules beside that of the step size, which then hold their last values."""
        return ()

    @property
    def lead_steps(self) -> int:
        """How many steps a block's ``lead`` has: those before it that its rows begin with."""
        return 0

    # -- what actors compute before a block leaves them -----------------------------------------------

    @property
    def generated(self) -> Mapping[str, ArraySpec]:
        """What is added to a block, [T, B, ...] of each for the rows of ``generate_from``; part of
        ``recorded``."""
        return {}

    @property
    def generates_in_group(self) -> bool:
        """Whether the ranks of an environment group share this work."""
        return False

    def generate_from(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        """The rows [T * B, ...] that ``generate`` works on."""
        return {}

    def generate(
        self, xp: Namespace, hyper: Hyper, acting: Acting, rows: Batch
    ) -> dict[str, Array]:
        """The ``generated`` arrays, a row for each row given."""
        return {}

    # -- learning -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def losses(self) -> tuple[Loss, ...]:
        """What an update descends."""

    @abstractmethod
    def n_updates(self, steps: int, made: int) -> int:
        """How many updates follow a block of ``steps``, when ``made`` were made with them."""

    @abstractmethod
    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        """What is learned from a block: rows of the replay, or arrays for ``prepare``. Rows of
        a replay may say which of them are ``KNOWN``."""

    def prepare(self, xp: Namespace, hyper: Hyper, state: TrainState, rows: Batch) -> Batch:
        """The data of all updates of a block, computed once with the state before the first."""
        return rows

    def minibatch(self, data: Batch, update: int | Array) -> Batch:
        """The part of the data that one update learns from."""
        return {name: array[update] for name, array in data.items()}

    def passes(self, rows: Batch) -> tuple[int, int]:
        """How many random orders of how many rows the updates of a block need; (0, 0): none."""
        return 0, 0

    def split(self, orders: Array, updates: int) -> Array:
        """The rows of each update [updates, rows], from random orders [passes, count]."""
        return orders

    def draws(self, rng: Normals, updates: int, batch: int) -> dict[str, Array]:
        """Random numbers that the losses find in their batches, [updates, batch, ...] each."""
        return {}

    def after_update(self, hyper: Hyper, state: TrainState, complete: bool) -> TrainState:
        """The state with its target moved; not ``complete`` is an update that skipped a loss."""
        return state

    def halt(self, hyper: Hyper) -> EarlyStop | None:
        """When the rest of a block's updates is skipped; None: never."""
        return None

    # -- shared -------------------------------------------------------------------------------------

    def among(self, xp: Namespace, outputs: Array, observations: Array) -> Array:
        """Logits or values [..., A], or [..., factors, choices], of the actions that the masks of the
        observations allow; the others are ``distributions.FORBIDDEN``."""
        return among(xp, outputs, self.spec.allowed(observations), self.spec.choices)

    def rewards(self, hyper: Hyper, steps: Rewarded) -> Array:
        """The rewards as they are learned; those that are normalised are divided and cut off when
        their batch is learned from (``normalized_batch``), with the deviation of that time."""
        rewards, limit = steps.rewards * hyper["reward_scale"], hyper.get("reward_clip")
        if limit is None or self.config.normalize_rewards:
            return rewards
        return rewards.clip(-limit, limit)

    def apply(
        self,
        xp: Namespace,
        params: Params,
        network: str,
        observations: Array,
        extra: Array | None = None,
    ) -> Array:
        """The outputs of a network, [N, outputs]."""
        more = () if extra is None else (extra,)  # a user's own network need not take them
        return self.networks[network].apply(xp, part(params, network), observations, *more)


def hyper_of(config: AlgorithmConfig) -> dict[str, float | Array]:
    """The real-valued parameters of a configuration that are not None."""
    named = {f.name: getattr(config, f.name) for f in fields(config) if "float" in str(f.type)}
    return {
        name: value
        for name, value in named.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def part(params: Params, name: str) -> dict[str, Array]:
    """The parameters of one network."""
    return {n.removeprefix(f"{name}/"): a for n, a in params.items() if n.startswith(f"{name}/")}


def group(params: Params, names: tuple[str, ...]) -> dict[str, Array]:
    """The parameters of several networks, and those that bear one of these names."""
    return {n: a for n, a in params.items() if n.partition("/")[0] in names}


def memory_of(network: Network) -> dict[str, ArraySpec]:
    """What a network remembers between steps; a user's own need not have the attribute."""
    return dict(getattr(network, "memory", {}))


def flat(array: Array) -> Array:
    """[T, B, ...] as [T * B, ...]."""
    return array.reshape(-1, *array.shape[2:])


def unroll(
    xp: Namespace,
    network: Network,
    params: Params,
    observations: Array,
    memory: Memory,
    resets: Array,
) -> tuple[Array, Memory]:
    """A recurrent network over [T, N, ...]: outputs [T, N, ...], and the memory after each step.

    ``resets`` [T, N] says where a new episode begins, and the memory with it.
    """

    def step(memory: Memory, now: tuple[Array, Array]) -> tuple[Memory, tuple[Array, Memory]]:
        seen, reset = now
        kept = {
            name: xp.where(reset.reshape(-1, *[1] * (array.ndim - 1)), 0, array)
            for name, array in memory.items()
        }
        outputs, after = network.step(xp, params, seen, kept)
        return after, (outputs, after)

    if xp is not np:
        from exarl.agents.compiled import scan

        return scan(step, memory, (observations, resets))[1]
    steps = []
    for now in zip(observations, resets, strict=True):
        memory, made = step(memory, now)
        steps.append(made)
    outputs, after = zip(*steps, strict=True)
    return np.stack(outputs), {name: np.stack([m[name] for m in after]) for name in memory}
