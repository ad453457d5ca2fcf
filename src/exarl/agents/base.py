"""What every agent offers: an acting half on every actor, a learning half on the learners.

The protocol, as the workflows use it::

    actor:    agent = Agent(spec, config, network, seed)      learner:  the same, then
              agent.set_weights(weights)                                agent.set_learner()
              actions, recorded = agent.action(obs, rng)                metrics = agent.train(block)
                                                                        weights = agent.get_weights()
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from exarl.config import LearnerConfig
from exarl.errors import CheckpointError, ConfigError
from exarl.learning.exploration import Streams
from exarl.networks.network import Network
from exarl.types import ABSENT, Arrays, ArraySpec, Block, EnvSpec, Metrics

if TYPE_CHECKING:
    from exarl.agents.prior import Prior

Spread = Callable[[Arrays], Arrays]
"""Lets each rank of an environment group ``generate`` a part of the rows."""


class Team(Protocol):
    """The learners of a run, as one of them sees it."""

    size: int
    index: int
    every: int  # updates between averagings

    def average(self, vector: np.ndarray, weight: float) -> np.ndarray:
        """The weighted mean of all learners' vectors; all of them must call it."""


MakeNetwork = Callable[..., Network]
"""``make(outputs, extra=0)``: the configured network, with ``extra`` inputs beside observations."""


@dataclass(frozen=True)
class NoParameters:
    """The configuration of a component that has no parameters of its own."""


def absent_in(spec: EnvSpec) -> dict[str, ArraySpec]:
    """What blocks record where agents come and go."""
    return {ABSENT: ArraySpec((), "bool")} if spec.agents_change else {}


class ExaAgent(ABC):
    """Base of all agents. A subclass implements the abstract methods; the rest has defaults.

    ``Config`` is the frozen dataclass of its parameters, ``action_kind`` the action space it needs
    ("discrete", "continuous" or "any"; other spaces are mapped to it where that is possible).
    Continuous actions are in [-1, 1] where the space is bounded; the adapter scales them.
    """

    Config: type = NoParameters
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults for the run and for networks that suit this agent better than the general ones, as in a
    tuned file: ``{"block_steps": 512, "models": {"MLP": {"hidden": [256, 256]}}}``."""
    action_kind: str = "discrete"
    factors_actions: bool = False
    """Whether it can choose the numbers of an action each by itself (``EnvSpec.choices``), rather than
    one of all combinations."""
    mixes_actions: bool = False
    """Whether an action can have continuous numbers and chosen ones (``EnvSpec.mixed``)."""
    respects_masks: bool = False
    """Whether it never chooses an action that the mask of an observation forbids (``EnvSpec.mask``)."""
    recorded: Mapping[str, ArraySpec] = {}
    """What ``action`` records beside each action, and the learner finds in the block."""
    memory: Mapping[str, ArraySpec] = {}
    """What the policy remembers of each environment between steps; zero when an episode begins.
    ``action`` is then called with ``memory``, name -> [B, ...], and changes it in place. An entry
    ``memory/NAME`` of ``recorded`` is stored in the block as it was before each action."""
    return_discount: float | None = None
    """If given, blocks record the discounted sum of rewards so far, as ``discounted_return``."""
    costs: tuple[str, ...] = ()
    """Numbers of info that blocks have of every step as ``costs`` (``agents.constraints``), which is
    then part of ``recorded``."""
    lead_steps: int = 0
    """If not 0, blocks have this many steps before them as their ``lead``."""
    metrics: tuple[str, ...] = ()
    """Names of what ``train`` reports, as columns of progress.csv."""
    needs_vtrace: bool = False
    """Whether it learns wrongly from blocks of older weights unless its ``vtrace`` is on."""
    total_steps: int | None = None
    """Environment steps after which the run ends, if it is given; set before ``set_learner``."""
    prior: Prior | None = None
    """Episodes from before the run, of which a part of each batch is; set before ``set_learner``."""
    learns_in_team: bool = False
    """Whether several learners can train this agent together (``join_team``, ``train_in_team``)."""
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext
    """``with self.compiling():`` around what compiles within ``train``; see ``report_compiling``."""

    def __init__(self, spec: EnvSpec, config: Any, network: MakeNetwork, seed: int) -> None:
        self.spec = spec
        self.config = config
        self.seed = seed
        self.recorded = {**self.recorded, **absent_in(spec)}

    # -- before anything is built -----------------------------------------------------------------

    @classmethod
    def check(cls, config: Any, run: LearnerConfig, *, learners: int, lags: bool) -> None:
        """ConfigError when the agent cannot learn correctly in such a run.

        ``learners`` train it together; ``lags`` says that actors may act with older weights.
        """
        if lags and cls.needs_vtrace and not getattr(config, "vtrace", True):
            raise ConfigError(
                f"agent '{run.agent}' learns only from its present policy; in workflow"
                f" '{run.workflow}' actors lag behind: leave vtrace on or set max_policy_lag 0"
            )

    @classmethod
    def discrete_bins(cls, config: Any) -> int:
        """Bins per dimension when a continuous action space is discretised for this agent."""
        return 5

    # -- acting ---------------------------------------------------------------------------------

    @abstractmethod
    def action(
        self,
        observations: np.ndarray,
        rng: Streams | None = None,
        memory: Arrays | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        """Actions [B] for observations [B, ...], and what is ``recorded`` with them.

        ``rng`` explores, with one stream per environment; None means the greedy policy.
        """

    @abstractmethod
    def set_weights(self, weights: np.ndarray) -> None:
        """Act from now on with this flat float32 vector."""

    def begin_episode(self, number: int) -> None:  # noqa: B027 - most agents have nothing to do
        """Called before each episode of an evaluation, where nothing explores. An agent that is random
        all the same draws from a stream of this number, so that episodes do not depend on each other.
        """

    def act_on_device(self, width: int, always: bool = False) -> bool:
        """Act from now on by networks on JAX's device, ``width`` rows at a time, if the agent can and
        the device is not a CPU (or ``always``). Return whether it does; only learners call this.

        Such an agent's ``take_acting`` takes what ``acting_now`` of the learning agent returns.
        """
        return False

    def prepare(self, block: Block, spread: Spread | None = None) -> Block:
        """What an actor does with a block before sending it; by default nothing.

        ``spread`` shares work on rows among the ranks of the environment group, if there are
        several; each of them then calls ``generate``.
        """
        return block

    def generate(self, rows: Arrays) -> Arrays:
        """One rank's share of ``prepare``: new arrays, with a row for each row given."""
        return {}

    # -- learning -------------------------------------------------------------------------------

    def join_team(self, team: Team) -> None:
        """Learn together with others; called before ``set_learner``. ConfigError by default."""
        raise ConfigError(f"{type(self).__name__} learns alone: it does not implement join_team")

    @abstractmethod
    def set_learner(self) -> None:
        """Build the learning half here. Only learners call this; it may import JAX."""

    def report_compiling(self, compiling: Callable[[], AbstractContextManager[None]]) -> None:
        """Use ``compiling`` around what compiles within ``train``, so that the user is told that this
        takes a while and its time is not counted as learning."""
        self.compiling = compiling

    @abstractmethod
    def train(self, block: Block) -> Metrics:
        """Learn from a block; return the terms of the loss, and ``updates``, how many were made.

        A term is a number or an array of one number, which a device may still be computing: then
        training goes on there while the host does something else.
        """

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        """Learn together with the team that was joined: all learners call this at once.

        A learner that got no block passes None. ``steps`` are those of all blocks together.
        """
        raise NotImplementedError

    def joins_blocks(self) -> bool:
        """Whether ``train_together`` may be called now."""
        return False

    def train_together(self, block: Block) -> Metrics:
        """Learn from several blocks that are joined to one (``types.concatenate``), as ``train`` would
        from one after another, but all of them are known before the first update."""
        return self.train(block)

    def train_on_prior(self, updates: int) -> Metrics:
        """Make this many updates from the prior data and what else is known; as ``train`` returns."""
        raise ConfigError(f"{type(self).__name__} does not learn from prior data")

    def clone(self, updates: int) -> Metrics:
        """Make this many updates towards the actions of the prior data; the mean ``clone_loss``."""
        raise ConfigError(f"{type(self).__name__} does not learn from prior data")

    def ended_schedules(self, steps: int, updates: int) -> Mapping[str, str]:
        """Lines for the user on the schedules that are over after ``steps`` and ``updates``, by what
        follows them."""
        return {}

    @abstractmethod
    def get_weights(self) -> np.ndarray:
        """All that acting needs, as one flat float32 vector."""

    def weights_later(self) -> Callable[[], np.ndarray]:
        """A function that returns the weights as of now, for callers that need them later."""
        weights = self.get_weights()
        return lambda: weights

    # -- keeping --------------------------------------------------------------------------------

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Everything training needs to continue: named arrays, and plain values for JSON."""
        return {"weights": self.get_weights()}, {}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        """Take over what ``state`` gave."""
        self.set_weights(arrays["weights"])

    def start(self, arrays: Arrays, parts: Collection[str]) -> None:
        """Begin with these parts of what ``state`` gave of another run; a learner that has made no
        update calls it. ValueError or LookupError where they do not fit; by default the agent can
        begin with a policy only."""
        if others := sorted({*parts} - {"policy"}):
            raise ValueError(f"{type(self).__name__} cannot begin with {', '.join(others)}")
        self.set_weights(arrays["weights"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights to a ``.safetensors`` file."""
        from safetensors.numpy import save_file

        save_file({"weights": self.get_weights()}, str(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Act with the weights that ``save`` wrote."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            self.set_weights(load_file(str(Path(path)))["weights"])
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise CheckpointError(f"cannot load weights from {path}: {error}") from error
