"""The data that crosses rooms: what an environment looks like, and a block of experience.

Shapes: ``T`` steps, ``B`` environments, ``K`` episodes that ended inside the block.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import jax

Array: TypeAlias = "np.ndarray | jax.Array"
"""An array of NumPy (on an actor) or of JAX (on a learner)."""

Namespace: TypeAlias = ModuleType
"""``numpy`` or ``jax.numpy``: mathematics is written once over either, as ``xp``."""

PyTree: TypeAlias = Any
"""Arrays in nested dictionaries, tuples and named tuples, as JAX maps over them."""

Params: TypeAlias = Mapping[str, Array]
"""A network's parameters, by name."""

Batch: TypeAlias = Mapping[str, Array]
"""Rows of named arrays that an update learns from."""

Memory: TypeAlias = Mapping[str, Array]
"""What a policy remembers of each environment, name -> [B, ...]."""

Metrics: TypeAlias = "dict[str, float | Array]"
"""What is reported of updates, by column name."""

Arrays: TypeAlias = dict[str, np.ndarray]
"""Named arrays in the host's memory: checkpoints, states of environments, rows of a replay."""

Action: TypeAlias = "Array | int"
"""An action of one environment, as functions over ``xp`` receive it."""

Rng: TypeAlias = "np.random.Generator | jax.Array"
"""A source of random numbers for functions over ``xp``: a NumPy generator or a JAX key."""

EpisodeInfo: TypeAlias = Mapping[str, Sequence[float]]
"""Of each number in ``info`` that is logged (``log_info``): the sum over an episode's steps, how many
steps had it, and the last, smallest and largest value."""

NOT_TOLD: EpisodeInfo = {}
"""Of an episode of which nothing is logged."""

ACTOR_PHASES = ("env", "inference", "send", "wait", "restart")
"""What an actor spends its time on; ``Block.seconds`` is in this order."""

ABSENT = "absent"
"""Recorded in a block [T, B], where agents come and go: who was not there at a step. What else the
block says of that step is void."""
PLACE = "place"
"""The recorded array [T, B, 2] that says to which environment a step belongs, by number, and which step
of its episode it is. Blocks have it in a run that keeps its episodes (``record``)."""

FAILURES = ("raise", "crash", "timeout", "nan", "shape")
"""How an environment fails; ``Block.failures`` counts in this order."""


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of one array, without its leading time and batch axes."""

    shape: tuple[int, ...]
    dtype: str

    def zeros(self, *leading: int) -> np.ndarray:
        return np.zeros((*leading, *self.shape), self.dtype)


PartKind = Literal["numbers", "image", "mask"]
"""How a part of an observation is seen; a mask says which actions are allowed."""


@dataclass(frozen=True)
class ObservationPart:
    """A part of an observation that is one vector of several: where it stands and its shape."""

    name: str
    kind: PartKind
    start: int
    shape: tuple[int, ...]

    @property
    def place(self) -> slice:
        """Its numbers in the vector."""
        return slice(self.start, self.start + math.prod(self.shape))


@dataclass(frozen=True)
class EnvSpec:
    """What an agent must know of an environment, after flattening and action mapping.

    ``n_actions`` counts the actions of a discrete space and is None for a continuous one, whose
    bounds are then ``action_low`` and ``action_high`` (flattened), and for one of several factors,
    each of which has as many values as ``choices`` says, or of both (``mixed``).
    """

    env_id: str
    observation: ArraySpec
    action: ArraySpec
    n_actions: int | None
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    max_episode_steps: int | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    """What the environment says of itself, for the run's manifest."""
    whole_actions: bool = False
    """Whether continuous actions are rounded to whole numbers, as a Box of integers needs them."""
    spaces: Mapping[str, Any] = field(default_factory=dict)
    """The environment's own ``observation`` and ``action`` space as JSON (``envs.space_json``), so that
    a policy can be used without the environment; empty where a space has no such form."""
    choices: tuple[int, ...] = ()
    """Of actions [factors]: how many values each factor has. Of mixed actions, one float vector of
    continuous numbers and then factors, of the latter."""
    parts: tuple[ObservationPart, ...] = ()
    """Of an observation whose parts are not all seen alike; empty where it is seen as one array. Such
    an observation is a vector, or with stacked frames [frames, size]."""
    agents_change: bool = False
    """Whether the agents of a simulation come and go. Blocks then record who was ``ABSENT``."""
    agents: int = 1
    """In one simulation."""
    policies: tuple[PolicySpec, ...] = ()
    """The policies of its agents, if there are several; empty where all agents share one.
    ``observation`` and ``action`` are then the form that these have in common in a block."""

    @property
    def discrete(self) -> bool:
        """Whether actions are chosen from a list, or from one for each factor."""
        return self.n_actions is not None or (bool(self.choices) and not self.mixed)

    @cached_property
    def numbers(self) -> int:
        """How many numbers of an action are continuous."""
        return 0 if self.n_actions is not None else math.prod(self.action.shape) - len(self.choices)

    @cached_property
    def mixed(self) -> bool:
        """Whether an action has continuous numbers and factors."""
        return bool(self.choices) and self.numbers > 0

    @property
    def action_size(self) -> int:
        """Actions to choose from, those of all factors together, or dimensions of a continuous one; of
        mixed actions the sum of both."""
        return self.n_actions or self.numbers + sum(self.choices)

    @cached_property
    def mask(self) -> ObservationPart | None:
        """The part of observations that says which actions are allowed, if there is one."""
        return next((part for part in self.parts if part.kind == "mask"), None)

    def allowed(self, observations: Array) -> Array | None:
        """Which actions [..., A] the masks of observations allow; None where there are no masks."""
        if self.mask is None:
            return None
        if len(self.observation.shape) > 1:  # that of the newest of stacked frames
            observations = observations[..., -1, :]
        return observations[..., self.mask.place] > 0

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EnvSpec:
        def array(spec: Mapping[str, Any]) -> ArraySpec:
            return ArraySpec(tuple(spec["shape"]), spec["dtype"])

        return cls(
            **{
                **data,
                "observation": array(data["observation"]),
                "action": array(data["action"]),
                "action_low": tuple(data["action_low"]),
                "action_high": tuple(data["action_high"]),
                "choices": tuple(data.get("choices", ())),
                "parts": tuple(
                    ObservationPart(**{**part, "shape": tuple(part["shape"])})
                    for part in data.get("parts", ())
                ),
                "policies": tuple(
                    PolicySpec(one["name"], tuple(one["places"]), cls.from_json(one["spec"]))
                    for one in data.get("policies", ())
                ),
            }
        )


@dataclass(frozen=True)
class PolicySpec:
    """One of several policies: its name, the places of its agents in a simulation, and what it sees."""

    name: str
    places: tuple[int, ...]
    spec: EnvSpec


class Steps(NamedTuple):
    """``S`` consecutive steps of ``B`` environments."""

    observations: Array  # [S, B, ...]
    actions: Array
    rewards: Array  # [S, B]
    terminated: Array
    truncated: Array
    next_observations: Array  # where each step truly led
    known: Array  # [S, B] bool: whether there was such a step; what else is said of it is void

    def newest(self, count: int) -> Steps:
        """The last ``count`` of these steps."""
        return Steps(*(array[len(array) - count :] for array in self))


def specs_of_steps(spec: EnvSpec) -> tuple[ArraySpec, ...]:
    """What the arrays of ``Steps`` are made of, in their order."""
    seen, flag = spec.observation, ArraySpec((), "bool")
    return seen, spec.action, ArraySpec((), "float32"), flag, flag, seen, flag


def unknown_steps(spec: EnvSpec, steps: int, width: int) -> Steps:
    """Steps of which none is known."""
    return Steps(*(each.zeros(steps, width) for each in specs_of_steps(spec)))


@dataclass(frozen=True)
class Block:
    """``T`` consecutive steps of ``B`` environments, with fixed layout.

    ``observations[t]`` led to ``actions[t]``; ``observations[T]`` is where the next block begins.
    When an episode ends at ``t`` (``terminated`` or ``truncated``), ``observations[t + 1]`` already
    belongs to the next episode, and the true last observation stands in ``final_observations``.
    The ``K`` entries of the last three arrays are ordered by environment, then by time.
    """

    observations: np.ndarray  # [T + 1, B, ...]
    actions: np.ndarray  # [T, B, ...]
    rewards: np.ndarray  # [T, B] float32
    terminated: np.ndarray  # [T, B] bool
    truncated: np.ndarray  # [T, B] bool
    final_observations: np.ndarray  # [K, ...]
    episode_returns: np.ndarray  # [K] float64
    episode_lengths: np.ndarray  # [K] int64
    recorded: Mapping[str, np.ndarray] = field(default_factory=dict)  # name -> [T, B, ...]
    version: int = 0  # of the weights that acted
    restarts: int = 0  # environments that were restarted
    seconds: np.ndarray = field(default_factory=lambda: np.zeros(len(ACTOR_PHASES)))
    failures: np.ndarray = field(  # [F, 1 + kinds] int64: who failed, and how often in each way
        default_factory=lambda: np.zeros((0, 1 + len(FAILURES)), np.int64)
    )
    lead: Steps | None = None  # the steps before the block, as many as the agent asks for
    episode_info: tuple[EpisodeInfo, ...] = ()  # of the last episodes of those K, with log_info
    simulations: int = 0  # episodes begun

    @classmethod
    def of(
        cls,
        arrays: Mapping[str, np.ndarray],
        recorded: Mapping[str, np.ndarray],
        numbers: Mapping[str, int],
        lead: Steps | None = None,
        info: tuple[EpisodeInfo, ...] = (),
    ) -> Block:
        """The block of these ``BLOCK_ARRAYS``, recorded arrays, ``BLOCK_NUMBERS``, lead and info."""
        fields: dict[str, Any] = {**arrays, **numbers}
        return cls(**fields, recorded=recorded, lead=lead, episode_info=info)

    @property
    def steps(self) -> int:
        """Environment steps in this block, T x B."""
        return self.rewards.size

    @property
    def ended(self) -> np.ndarray:
        """[T, B]: whether an episode ended at this step, for whatever reason."""
        ended: np.ndarray = self.terminated | self.truncated
        return ended

    def next_observations(self) -> np.ndarray:
        """[T, B, ...]: where each step truly led, also at the end of an episode."""
        following: np.ndarray = self.observations[1:].copy()
        following.swapaxes(0, 1)[self.ended.T] = self.final_observations
        return following


class Row(NamedTuple):
    """One step of B environments, to be written in place."""

    observations: np.ndarray  # [B, ...] after the step, of the next episode where one ended
    rewards: np.ndarray  # [B] float32
    terminated: np.ndarray  # [B] bool
    truncated: np.ndarray  # [B] bool
    costs: np.ndarray  # [B, 2, C] of the step and of the episode so far; C is 0 without constraints
    absent: np.ndarray  # [B] bool, whose agents were not there; [0] where agents do not change


class End(NamedTuple):
    """An episode that ended in the environment of a slot, with its true last observation."""

    slot: int
    observation: np.ndarray
    total_reward: float
    length: int
    info: EpisodeInfo = NOT_TOLD


class Cut(NamedTuple):
    """An episode that a failure ended before this step; the environment is now in ``number``."""

    slot: int
    number: int
    total_reward: float
    length: int
    info: EpisodeInfo = NOT_TOLD


BY_EPISODE = ("final_observations", "episode_returns", "episode_lengths")
ROWS_ADD_UP = (*BY_EPISODE, "failures")
BLOCK_ARRAYS = (
    "observations",
    "actions",
    "rewards",
    "terminated",
    "truncated",
    *BY_EPISODE,
    "seconds",
    "failures",
)
"""The arrays every block has, in the order in which they travel; ``comm.codec`` has their shapes."""

BLOCK_NUMBERS: Mapping[str, Callable[[Iterable[int]], int]] = {
    "version": min,
    "restarts": sum,
    "simulations": sum,
}
"""The whole numbers every block has, in the order in which they travel, and how those of several
blocks are joined."""


def concatenate(blocks: Sequence[Block]) -> Block:
    """One block of all the environments of ``blocks``, in their order (same T, same layout)."""
    if len(blocks) == 1:
        return blocks[0]

    def joined(name: str) -> np.ndarray:
        parts = [getattr(block, name) for block in blocks]
        return np.concatenate(parts, axis=0 if name in ROWS_ADD_UP else 1)

    arrays = {name: joined(name) for name in BLOCK_ARRAYS if name != "seconds"}
    seconds = np.sum([block.seconds for block in blocks], 0)
    recorded = {
        name: np.concatenate([block.recorded[name] for block in blocks], 1)
        for name in blocks[0].recorded
    }
    numbers = {n: join(getattr(block, n) for block in blocks) for n, join in BLOCK_NUMBERS.items()}
    leads = [block.lead for block in blocks if block.lead is not None]
    lead = (
        Steps(*(np.concatenate(parts, 1) for parts in zip(*leads, strict=True))) if leads else None
    )
    info = tuple(each for block in blocks for each in block.episode_info)
    return Block.of({**arrays, "seconds": seconds}, recorded, numbers, lead, info)


def acting_seconds(block: Block) -> dict[str, float]:
    """The seconds that acting the block took, by phase: ``send`` and ``wait`` are not known yet."""
    spent = dict(zip(ACTOR_PHASES, block.seconds.tolist(), strict=True))
    return {phase: spent[phase] for phase in ("env", "inference", "restart")}


def timed(block: Block, seconds: Mapping[str, float]) -> Block:
    """The block with these seconds, by phase, in place of those it has."""
    spent = block.seconds.copy()
    for phase, value in seconds.items():
        spent[ACTOR_PHASES.index(phase)] = value
    return dataclasses.replace(block, seconds=spent)
