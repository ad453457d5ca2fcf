"""What the agents that learn by gradients share: parameters, normalisers, schedules, keeping."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from exarl.agents.acting import Acting, Acts, memory_of
from exarl.agents.base import MakeNetwork, Network, Team
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning.exploration import LEARNER, generator, json_state, restore_state
from exarl.learning.normalise import Moments, deviation, normalised, sums_around, with_sums
from exarl.networks import ParamLayout
from exarl.networks.precision import Reduced
from exarl.types import Arrays, ArraySpec, Block, EnvSpec


@dataclass(frozen=True)
class LearnedConfig:
    """Parameters that all learning agents have."""

    gamma: float = param(0.99, "discount factor", ge=0, le=1)
    reward_scale: float = param(
        1.0, "factor on every reward; learning is best when values are about 10", gt=0
    )
    reward_clip: float | None = param(None, "cut scaled rewards off at +- this; null: do not", gt=0)
    normalize_rewards: bool = param(
        False, "divide rewards by the running standard deviation of the discounted return"
    )
    normalize_observations: bool = param(
        False, "observations as deviations from their running mean, in standard deviations"
    )
    learning_rate: float = param(1e-3, "step size of the optimiser", gt=0)
    learning_rate_end: float = param(0.0, "step size after learning_rate_updates", ge=0)
    learning_rate_updates: int = param(
        0, "if not 0: the step size falls linearly to learning_rate_end over so many updates", ge=0
    )
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd", "nadam", "radam", "lion", "adabelief"] = (
        param("adam", "optimiser, by its name in optax")
    )
    max_grad_norm: float | None = param(10.0, "clip the gradient's norm; null: do not", gt=0)
    precision: Literal["float32", "bfloat16"] = param(
        "float32",
        "numbers that the learner's networks compute with; parameters, optimiser, targets and losses"
        " are float32 always, and so is acting",
    )


class Learned(Acts):
    """Base of the agents whose learning half is compiled from pure functions.

    A subclass names its networks, writes ``act``, ``plan`` and ``train``, and says in ``acts_with``
    which networks acting needs. Parameters are flat: ``"policy/0/w"`` is array ``0/w`` of network
    ``policy``. ``self.acting`` holds, by network, what this rank acts with.
    """

    learns_in_team = True
    recurrent = False
    """Whether it can learn with a network that has memory."""

    def __init__(self, spec: EnvSpec, config: Any, network: MakeNetwork, seed: int) -> None:
        super().__init__(spec, config, network, seed)
        self._learned: Any = None  # the learning half's state, on a learner
        self._flat: Any = None  # what it shows, as one vector, once an update has been made
        self._steps = 0
        self._seen = Moments.none(spec.observation.shape)
        self._returns = Moments.none(())
        if config.normalize_observations and spec.observation.dtype != "float32":
            raise ConfigError("normalize_observations is for numbers, not for images")
        self.networks = self.make_networks(network)
        if config.precision != "float32":
            self.networks = {n: Reduced(net) for n, net in self.networks.items()}
        self._take_memory()
        self._first = self.first_params(seed)
        if config.normalize_rewards:
            self.return_discount = config.gamma
            self.recorded = {**self.recorded, "discounted_return": ArraySpec((), "float32")}
        shown = self._everything_shown({"params": self._first, "target": self._first})
        self._layout = ParamLayout.of(shown)
        self.set_weights(self._layout.pack(shown))

    # -- what a subclass says --------------------------------------------------------------------

    @abstractmethod
    def make_networks(self, make: MakeNetwork) -> dict[str, Network]:
        """The networks by name."""

    @abstractmethod
    def plan(self, compiled: Any) -> Any:
        """The ``compiled.Plan`` of an update."""

    def first_params(self, seed: int) -> Arrays:
        """The parameters that a run with this seed begins with."""
        rng = generator(seed, LEARNER, 0)
        return {
            f"{part}/{name}": array
            for part, net in self.networks.items()
            for name, array in net.init(rng).items()
        } | self.other_params()

    def first_state(self, compiled: Any, params: Any) -> dict[str, Any]:
        """The learner's state that begins with these parameters."""
        return {"params": params, **self.start(compiled, params), **self._norms()}

    def other_params(self) -> Arrays:
        """Parameters that belong to no network."""
        return {}

    def start(self, compiled: Any, params: Arrays) -> dict[str, Any]:
        """What the learner's state holds beside ``params``; all of it is checkpointed."""
        return {"opt": self.optimiser(compiled).init(params)}

    def shown(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that acting needs, of a learner's state."""
        parts = tuple(f"{part}/" for part in self.acts_with)
        return {n: a for n, a in state["params"].items() if n.startswith(parts)}

    def schedules(self, steps: Any, xp: Any = np) -> dict[str, Any]:
        """Numbers that actors need and that change with the steps made; reported as metrics."""
        return {}

    def fused(self, compiled: Any, state: Any, block: Any, made: Any, key: Any) -> tuple[Any, Any]:
        """The updates of a block that never leaves the device: new state and metrics, a pure function.

        ``block`` has a block's arrays, but compiled ones; ``made`` counts all steps, these included;
        ``key`` is for random numbers.
        """
        raise NotImplementedError

    def equipped(self, compiled: Any, state: Any, block: Any) -> Any:
        """The first state with what else ``fused`` needs; ``block`` only tells shapes and dtypes."""
        return state

    def updates_of(self, steps: int, made: int) -> int:
        """How many updates follow so many steps, ``made`` having been made with them."""
        raise NotImplementedError

    # -- learning --------------------------------------------------------------------------------

    def set_learner(self, team: Team | None = None) -> None:
        from exarl.agents import compiled

        self._team = team
        self._rng = generator(self.seed, LEARNER, 1, team.index if team else 0)
        self._steps = 0
        shown = self._layout.unpack(self._weights)  # what was loaded, where something was
        params = {name: shown.get(name, array) for name, array in self._first.items()}
        self._learned = compiled.to_device(self.first_state(compiled, params))
        self._flat = None
        compiling = lambda: self.compiling()  # noqa: E731, PLW0108  # who shows it is set later
        self._update = compiled.learner(self.plan(compiled), team, self._shown_in_order, compiling)

    def optimiser(self, compiled: Any, learning_rate: float | None = None) -> Any:
        """The configured optimiser."""
        cfg = self.config
        start = cfg.learning_rate if learning_rate is None else learning_rate
        rate = compiled.linear(start, cfg.learning_rate_end, cfg.learning_rate_updates)
        return compiled.optimizer(cfg.optimizer, rate, cfg.max_grad_norm)

    def part(self, params: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The parameters of one network."""
        return {
            n.removeprefix(f"{name}/"): a for n, a in params.items() if n.startswith(f"{name}/")
        }

    def rewards(self, block: Block) -> np.ndarray:
        """The block's rewards as they are learned, but for their normalisation."""
        rewards: np.ndarray = block.rewards * self.config.reward_scale
        limit = self.config.reward_clip
        return rewards if limit is None else rewards.clip(-limit, limit)

    def normal_batch(self, xp: Any, state: Any, batch: Any) -> Any:
        """A batch with observations and rewards normalised, within the compiled update."""
        if self.config.normalize_observations:
            mean, std = state["norm"]["mean"], state["norm"]["std"]
            names = [name for name in batch if name.endswith("observation")]
            batch = {**batch, **{n: normalised(xp, batch[n], mean, std) for n in names}}
        if self.config.normalize_rewards and "reward" in batch:
            batch = {**batch, "reward": batch["reward"] / state["norm"]["return_std"]}
        return batch

    def follow(self, block: Block | None) -> None:
        """Let the normalisers see a block; with several learners all together see all blocks."""
        cfg = self.config
        if not (cfg.normalize_observations or cfg.normalize_rewards):
            return
        shape = self.spec.observation.shape
        sums = [np.zeros(1 + 2 * math.prod(shape)), np.zeros(3)]
        if block is not None:
            sums = self._sums(np, self._seen, self._returns, block)
        if self._team is not None and self._team.size > 1:
            own = np.concatenate(sums).astype(np.float32)
            joined = self._team.average(own, 1.0).astype(np.float64) * self._team.size
            sums = np.split(joined, [len(sums[0])])
        self._seen = with_sums(self._seen, sums[0])
        self._returns = with_sums(self._returns, sums[1])
        from exarl.agents import compiled

        self._learned = {**self._learned, **compiled.to_device(self._norms())}

    def followed(self, xp: Any, state: Any, moments: Any, block: Any) -> tuple[Any, Any]:
        """The same for a block on the device: the state's normalisers, and the moments behind them."""
        cfg = self.config
        if not (cfg.normalize_observations or cfg.normalize_rewards):
            return state, moments
        seen, returns = (Moments(*parts) for parts in moments)
        sums = self._sums(xp, seen, returns, block)
        seen, returns = with_sums(seen, sums[0], xp), with_sums(returns, sums[1], xp)
        norm = {**state["norm"]}
        if cfg.normalize_observations:
            norm |= {"mean": seen.mean, "std": deviation(xp, seen)}
        if cfg.normalize_rewards:
            norm["return_std"] = deviation(xp, returns)
        return {**state, "norm": norm}, tuple((m.count, m.mean, m.squares) for m in (seen, returns))

    def moments(self) -> Any:
        """Where ``followed`` begins."""
        return tuple(
            tuple(np.asarray(part, np.float32) for part in (m.count, m.mean, m.squares))
            for m in (self._seen, self._returns)
        )

    def take(self, state: Any, moments: Any, steps: int) -> None:
        """Become what was learned on the device in so many steps; nothing is waited for."""
        self._learned, self._flat = state, None
        self._seen, self._returns = (Moments(*parts) for parts in moments)
        self._steps = steps

    def _sums(self, xp: Any, seen: Moments, returns: Moments, block: Any) -> list[Any]:
        rows = block.observations[:-1].reshape(-1, *self.spec.observation.shape)
        summed = block.recorded.get("discounted_return", rows[:0]).reshape(-1)
        return [sums_around(seen, rows, xp), sums_around(returns, summed, xp)]

    def learn(self, inputs: Any, updates: int) -> dict[str, Any]:
        """Make the updates of a block; their metrics, which the device may still be computing."""
        self._learned, metrics = self._update(self._learned, inputs, updates)
        return self.took(metrics)

    def took(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """The metrics of updates without the weights, which are kept. Nothing waits: copies to the
        host begin when the updates have ended."""
        from exarl.agents import compiled

        compiled.start_copy(metrics)
        self._flat = metrics.pop(compiled.WEIGHTS, None)
        return metrics

    def report(self, updates: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """What ``train`` returns."""
        now = {name: float(value) for name, value in self.schedules(self._steps).items()}
        return {"updates": updates, **now, **metrics}

    def get_weights(self) -> np.ndarray:
        return self.weights_later()()

    def weights_later(self) -> Callable[[], np.ndarray]:
        if self._learned is None or self._flat is None:
            now = (
                self._weights.copy()
                if self._learned is None
                else self._layout.pack(self._everything_shown(self._learned))
            )
            return lambda: now
        flat, beside = self._flat, [np.ravel(a) for a in self._shown_beside().values()]
        return lambda: np.concatenate([np.asarray(flat), *beside], dtype=np.float32)

    def acting_now(self) -> Acting:
        """What acting needs, of the learner's present state; updates leave it alone."""
        from exarl.agents import compiled

        return self.by_part(compiled.copied(self._everything_shown(self._learned)))

    # -- keeping ---------------------------------------------------------------------------------

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        from exarl.agents import compiled

        arrays = {"weights": self.get_weights(), **compiled.to_arrays(self._learned, "learned")}
        for name, moments in (("seen", self._seen), ("returns", self._returns)):
            arrays[f"{name}/count"] = np.array(moments.count)
            arrays |= {
                f"{name}/mean": np.asarray(moments.mean),
                f"{name}/squares": np.asarray(moments.squares),
            }
        return arrays, {"steps": self._steps, "rng": json_state(self._rng)}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        from exarl.agents import compiled

        self._learned = compiled.from_arrays(self._learned, arrays, "learned")
        self._flat = None
        self._seen, self._returns = (
            Moments(
                float(arrays[f"{name}/count"]), arrays[f"{name}/mean"], arrays[f"{name}/squares"]
            )
            for name in ("seen", "returns")
        )
        self.set_weights(arrays["weights"])
        self._steps = numbers["steps"]
        if "rng" in numbers:
            restore_state(self._rng, numbers["rng"])

    # -- inside ----------------------------------------------------------------------------------

    def _everything_shown(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.shown(state), **self._shown_beside()}

    def _shown_beside(self) -> dict[str, Any]:
        """What acting needs beside parameters, and the host knows."""
        now = {
            f"now/{name}": np.float32(value) for name, value in self.schedules(self._steps).items()
        }
        norm = {}
        if self.config.normalize_observations:
            norm = {"norm/mean": self._seen.mean, "norm/std": self._seen.std}
        return {**norm, **now}

    def _shown_in_order(self, state: Mapping[str, Any]) -> list[Any]:
        """The parameters that acting needs, as the flat vector has them; JAX sorts dictionaries."""
        shown = self.shown(state)
        return [shown[name] for name, _ in self._layout.shapes if name in shown]

    def _norms(self) -> dict[str, Any]:
        norm: dict[str, Any] = {}
        if self.config.normalize_observations:
            norm = {"mean": self._seen.mean, "std": self._seen.std}
        if self.config.normalize_rewards:
            norm["return_std"] = self._returns.std
        return {"norm": {n: np.asarray(a, np.float32) for n, a in norm.items()}} if norm else {}

    def _take_memory(self) -> None:
        """The memory of the acting networks becomes the agent's, and travels in blocks."""
        memory = memory_of(self.networks[self.acts_with[0]])
        if memory and not self.recurrent:
            name = type(self).__name__
            raise ConfigError(f"{name} cannot learn with a network that has memory: use an MLP")
        self._recalls = bool(memory)
        self.memory = {**self.memory, **memory}
        self.recorded = {
            **self.recorded,
            **{f"memory/{name}": spec for name, spec in memory.items()},
        }
