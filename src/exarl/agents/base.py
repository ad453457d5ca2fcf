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
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from exarl.errors import CheckpointError
from exarl.learning.exploration import Streams
from exarl.types import Arrays, ArraySpec, Block, EnvSpec


class Network(Protocol):
    """What ``exarl.networks`` builds: parameters and one forward pass over ``xp``."""

    def init(self, rng: np.random.Generator) -> Arrays: ...

    def apply(self, xp: Any, params: Any, observations: Any, extra: Any = None) -> Any: ...

    @property
    def memory(self) -> Mapping[str, ArraySpec]: ...

    def step(
        self, xp: Any, params: Any, observations: Any, memory: Any, extra: Any = None
    ) -> tuple[Any, Any]: ...


Spread = Callable[[Arrays], Arrays]
"""Lets the ranks of an environment group ``generate`` a part of the rows each."""


class Team(Protocol):
    """The learners of a run, as one of them sees it."""

    size: int
    index: int
    every: int  # updates between averagings

    def average(self, vector: np.ndarray, weight: float) -> np.ndarray:
        """The weighted mean of everyone's vector; all learners must call it."""


MakeNetwork = Callable[..., Network]
"""Builds the configured network with so many outputs, and ``extra`` inputs beside observations."""


@dataclass(frozen=True)
class NoParameters:
    """The configuration of a component that has no parameters of its own."""


class ExaAgent(ABC):
    """Base of all agents. A subclass implements the abstract methods; the rest has defaults.

    ``Config`` is the frozen dataclass of its parameters, ``action_kind`` the action space it needs
    ("discrete", "continuous" or "any"; other spaces are mapped to it where that is possible).
    Continuous actions are in [-1, 1] where the space is bounded; the adapter scales them.
    """

    Config: type = NoParameters
    action_kind: str = "discrete"
    recorded: Mapping[str, ArraySpec] = {}
    """What ``action`` records beside each action, and the learner finds in the block."""
    memory: Mapping[str, ArraySpec] = {}
    """What the policy remembers of each environment between steps; zero when an episode begins.
    ``action`` is then called with ``memory``, name -> [B, ...], and changes it in place. What
    ``recorded`` has as ``memory/NAME`` is kept in the block as it was before each action."""
    return_discount: float | None = None
    """If given, blocks record the discounted sum of rewards so far, as ``discounted_return``."""
    metrics: tuple[str, ...] = ()
    """Names of what ``train`` reports, as columns of progress.csv."""
    needs_vtrace: bool = False
    """Whether it learns wrongly from blocks of older weights unless its ``vtrace`` is on."""
    learns_in_team: bool = False
    """Whether several learners can train this agent together."""
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext
    """``with self.compiling():`` around what compiles within ``train``; the learner of a run sets
    it, shows the user that this takes a while, and does not count it as learning."""

    def __init__(self, spec: EnvSpec, config: Any, network: MakeNetwork, seed: int) -> None:
        self.spec = spec
        self.config = config
        self.seed = seed

    # -- acting ---------------------------------------------------------------------------------

    @abstractmethod
    def action(
        self,
        observations: np.ndarray,
        rng: Streams | None = None,
        memory: Arrays | None = None,
    ) -> tuple[Any, Arrays]:
        """Actions [B] for observations [B, ...], and what is ``recorded`` with them.

        ``rng`` explores, with one stream an environment; None means the greedy policy.
        """

    @abstractmethod
    def set_weights(self, weights: np.ndarray) -> None:
        """Act from now on with this flat float32 vector."""

    def act_on_device(self, width: int, always: bool = False) -> bool:
        """Act from now on by networks on JAX's device, ``width`` rows at a time, if it can be done and
        the device is no CPU (or ``always``). Whether it is so; only learners ask.

        Such an agent's ``take_acting`` takes what ``acting_now`` gives on the one that learns.
        """
        return False

    def prepare(self, block: Block, spread: Spread | None = None) -> Block:
        """What an actor does with a block before it leaves; by default nothing.

        ``spread`` shares work on rows among the ranks of the environment group, if there are
        several; every one of them then calls ``generate``.
        """
        return block

    def generate(self, rows: Arrays) -> Arrays:
        """A member's share of ``prepare``: new arrays, a row for each row given."""
        return {}

    # -- learning -------------------------------------------------------------------------------

    @abstractmethod
    def set_learner(self) -> None:
        """Build the learning half here. Only learners call this; it may import JAX.

        An agent with ``learns_in_team`` also takes ``team=``, and averages its gradients over it.
        """

    @abstractmethod
    def train(self, block: Block) -> dict[str, Any]:
        """Learn from a block; the terms of the loss, and ``updates`` = how many were made.

        A term is a number or an array of one number, which a device may still be computing: then
        training goes on there while the host does something else.

        With ``learns_in_team`` it is called as ``train(block or None, steps)``: all learners at
        once, ``steps`` being those of all their blocks together.
        """

    @abstractmethod
    def get_weights(self) -> np.ndarray:
        """All that acting needs, as one flat float32 vector."""

    def weights_later(self) -> Callable[[], np.ndarray]:
        """The weights as of now, for whoever has something to do before they are there."""
        weights = self.get_weights()
        return lambda: weights

    # -- keeping --------------------------------------------------------------------------------

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Everything training needs to continue: named arrays, and plain numbers for JSON."""
        return {"weights": self.get_weights()}, {}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        """Take over what ``state`` gave."""
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
