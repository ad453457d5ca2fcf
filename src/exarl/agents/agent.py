"""The agents that learn by gradients: ``ExaAgent`` over an algorithm, a policy and an engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from exarl.agents import normalizers, resets, start
from exarl.agents.algorithm import Algorithm, AlgorithmConfig, TrainState, hyper_of
from exarl.agents.base import ExaAgent, MakeNetwork, Spread, Team
from exarl.agents.blocks import on_host
from exarl.agents.constraints import Constraints, Dual
from exarl.agents.experience import Experience
from exarl.agents.normalizers import Normalizers
from exarl.agents.offpolicy import LEARNS_ALONE, OffPolicyConfig, check_replay
from exarl.agents.optimizers import check_optimizer, ended_schedules, follows_run
from exarl.agents.policy import (
    NetworkPolicy,
    Parts,
    by_part,
    changed,
    check_networks,
    recalled,
    with_generated,
)
from exarl.agents.prior import make_cloner, moments_with, prior_rows
from exarl.config import LearnerConfig
from exarl.errors import ConfigError
from exarl.export.policy import Policy
from exarl.learning.exploration import LEARNER, Streams, generator, json_state, restore_state
from exarl.learning.normalise import Moments
from exarl.networks import ParamLayout
from exarl.networks.precision import reduced
from exarl.types import Array, Arrays, ArraySpec, Block, EnvSpec, Metrics

if TYPE_CHECKING:
    from exarl.agents.cloning import Cloner
    from exarl.agents.compiled import CompileObserver
    from exarl.agents.engine import Engine

C = TypeVar("C", bound=AlgorithmConfig)


class NetworkAgent(ExaAgent, Generic[C]):
    """Acts by a ``NetworkPolicy`` everywhere; on a learner, an engine runs the algorithm's updates.

    A subclass binds ``make_algorithm`` and ``Config``, and has nothing else of its own.
    """

    learns_in_team = True
    swept: Collection[str] = ()
    """Parameters that differ between the agents of a population, which this one stands for."""

    def __init__(self, spec: EnvSpec, config: C, network: MakeNetwork, seed: int) -> None:
        super().__init__(spec, config, network, seed)
        self.config: C = config
        self._normalizers = Normalizers.of(config, spec)
        self._constraints = Constraints.of(config)
        self.costs = self._constraints.names
        own = type(self).metrics
        self.metrics = (*own, *self._constraints.columns, *resets.columns(config))
        make = network if config.precision == "float32" else reduced(network)
        self.algorithm = self.make_algorithm(spec, config, make)
        check_networks(type(self).__name__, self.algorithm)
        self.hyper = hyper_of(self.algorithm.config)
        self.memory = self.algorithm.memory
        self.lead_steps = self.algorithm.lead_steps
        recalls = recalled(self.algorithm)
        kept = {f"memory/{name}": spec for name, spec in self.memory.items() if name in recalls}
        self.recorded = {**self.recorded, **self.algorithm.recorded, **kept}
        if config.normalize_rewards:
            self.return_discount = config.gamma
            self.recorded = {**self.recorded, "discounted_return": ArraySpec((), "float32")}
        self._steps = 0
        self._moments = self._normalizers.first()
        self._dual = self._constraints.first
        self._told: dict[str, float] = {}  # of the constraints
        self._first = self.first_params(seed, self.hyper)
        resets.check_networks(config, self._first)
        everything = self._acting(self._first, self.algorithm.target(self._first))
        self._layout = ParamLayout.of(everything)
        self.policy = NetworkPolicy(self.algorithm, self.hyper, self._layout)
        self.set_weights(self._layout.pack(everything))
        self._team: Team | None = None
        self.train_state: TrainState | None = None  # on a learner
        self._flat: Array | None = None  # its acting parameters, once an update has been made

    @staticmethod
    @abstractmethod
    def make_algorithm(
        spec: EnvSpec, config: C, network: MakeNetwork
    ) -> Algorithm[AlgorithmConfig]:
        """The algorithm for an environment; ConfigError when it cannot learn there."""

    @classmethod
    def check(
        cls, config: AlgorithmConfig, run: LearnerConfig, *, learners: int, lags: bool
    ) -> None:
        if isinstance(config, OffPolicyConfig):
            check_replay(config, run, learners)
        check_optimizer(config, run.total_steps)
        super().check(config, run, learners=learners, lags=lags)

    # -- acting -------------------------------------------------------------------------------------

    def action(
        self,
        observations: np.ndarray,
        rng: Streams | None = None,
        memory: Arrays | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        return self.policy.action(observations, rng, memory)

    def set_weights(self, weights: np.ndarray) -> None:
        self.policy.set_weights(weights)

    def act_on_device(self, width: int, always: bool = False) -> bool:
        return self.policy.place_on_device(width, always)

    def take_acting(self, parts: Parts) -> None:
        """Act from now on with what ``acting_now`` gave."""
        self.policy.adopt(parts)

    def acting_now(self) -> Parts:
        """What acting needs, of the learner's present state; later updates do not change it."""
        from exarl.agents import compiled

        everything = self._acting(self._learning().params, self._learning().target)
        return by_part(self.algorithm.acts_with, compiled.copied(everything))

    def exported(self) -> Policy:
        """The greedy policy for other programs; ValueError when the network cannot be exported, or a
        subclass acts otherwise."""
        if (name := changed(type(self), "action", ("exported",))) is not None:
            raise ValueError(f"{name} changes action(): give it an exported() of its own")
        return self.policy.exported()

    def prepare(self, block: Block, spread: Spread | None = None) -> Block:
        alone = spread is None or not self.algorithm.generates_in_group
        generate = self.generate if alone or spread is None else spread
        return with_generated(self.algorithm, self.hyper, block, generate)

    def generate(self, rows: Arrays) -> Arrays:
        return on_host(self.algorithm.generate(np, self.hyper, self.policy.acting, rows))

    # -- learning -----------------------------------------------------------------------------------

    def first_params(self, seed: int, hyper: Mapping[str, float | Array]) -> Arrays:
        """The parameters that a run with this seed begins with."""
        return self.algorithm.init(generator(seed, LEARNER, 0), hyper)

    def join_team(self, team: Team) -> None:
        if team.size > 1 and getattr(self.config, "replay_device", "host") == "device":
            raise ConfigError(LEARNS_ALONE)
        self._team = team

    def set_learner(self) -> None:
        from exarl.agents.compiled import CompileObserver, to_device
        from exarl.agents.engine import Engine

        check_optimizer(self.config, self.total_steps)
        self._rng = generator(self.seed, LEARNER, 1, self._team.index if self._team else 0)
        self._steps, self._updates_made, self._flat = 0, 0, None
        self._filled = self._whole_blocks  # whether there surely is something to learn from
        loaded = self._layout.unpack(self.policy.weights)
        params = {name: loaded.get(name, array) for name, array in self._first.items()}
        engine = Engine(self.algorithm)
        self.train_state = to_device(engine.init(self.hyper, params, self._norm()))
        # The learner of a run sets ``compiling`` after this.
        observer = CompileObserver(lambda: self.compiling())  # noqa: PLW0108
        rows = None
        if self.prior is not None:
            rows = prior_rows(self.algorithm, self.hyper, self.prior.blocks)
            if self._normalizers.used:
                see = (self._normalizers, self._moments, self.return_discount or 0.0)
                self._moments = moments_with(self.prior, *see)
                self._renew_norm()
        self.experience = self._make_experience(engine, observer, rows)
        own = self.algorithm, self.hyper, rows, self.seed, observer
        self._make_cloner = partial(make_cloner, *own)
        self._cloner: Cloner | None = None

    def _make_experience(
        self, engine: Engine, observer: CompileObserver, prior_rows: Arrays | None
    ) -> Experience:
        from exarl.agents.experiences import make_experience

        def first(reset: int) -> Arrays:
            return self.algorithm.init(generator(self.seed, LEARNER, 2, reset), self.hyper)

        own = engine, self.hyper, self._team, self.acting_order, observer, self._rng
        return make_experience(*own, first, self.prior, prior_rows)

    def train(self, block: Block) -> Metrics:
        return self.train_in_team(block, block.steps)

    def joins_blocks(self) -> bool:
        """Once updates are made: from then on their numbers add up. Not where multipliers take a step
        with each block, nor in a subclass with its own ``train``."""
        kind, plain = type(self), NetworkAgent
        own = (kind.train, kind.train_in_team) != (plain.train, plain.train_in_team)
        able = self.experience.joins_blocks and not self._constraints and not own
        return able and self._updates_made > 0

    def train_together(self, block: Block) -> Metrics:
        return self.train_in_team(block, block.steps, joined=True)

    def train_in_team(self, block: Block | None, steps: int, *, joined: bool = False) -> Metrics:
        rows = None
        if block is not None:
            rows = on_host(self.algorithm.rows(np, self.hyper, block))
        self.update_normalizers(block)
        if follows_run(self.config) and self.total_steps is not None:
            made = np.float32(self._steps / self.total_steps)
            self.train_state = self._learning()._replace(progress=made)  # type: ignore[arg-type]
        self._steps += steps
        updates = self.algorithm.n_updates(steps, self._steps)
        if not updates or not self._can_learn(rows):
            self.experience.add(rows)
            return self._report(0, {})
        return self._update(rows, updates, joined=joined)

    def train_on_prior(self, updates: int) -> Metrics:
        return self._update(None, updates)

    def clone(self, updates: int) -> Metrics:
        self._cloner = self._cloner or self._make_cloner()
        self.train_state, metrics = self._cloner.learn(self._learning(), updates)
        self._flat = None
        return metrics

    def _update(self, rows: Arrays | None, updates: int, *, joined: bool = False) -> Metrics:
        state, made, learn = self._learning(), self._updates_made, self.experience.learn
        self.train_state, metrics = learn(state, rows, updates, made, joined=joined)
        self._updates_made += updates
        return self._report(updates, self._pop_weights(metrics))

    def _can_learn(self, rows: Arrays | None) -> bool:
        """Whether updates can be made: once a learner of the team has rows. The first blocks give none
        where they are shorter than the windows."""
        if not self._filled:
            ready, team = self.experience.ready(rows), self._team
            if team is not None and team.size > 1:  # all learners must agree
                ready = bool(team.average(np.array([ready], np.float32), 1.0)[0] > 0)
            self._filled = ready
        return self._filled

    @property
    def _whole_blocks(self) -> bool:
        """Whether there is something to learn from in every block."""
        return not (self.lead_steps or self.spec.agents_change)

    def update_normalizers(self, block: Block | None) -> None:
        """Let the normalisers see a block; all learners of a team call it and see all blocks."""
        if not (self._normalizers.used or self._constraints):
            return
        if self._normalizers.used:
            sums = self._normalizers.sums_of_team(self._moments, block, self._team)
            self._moments = self._normalizers.after(np, self._moments, sums)
        if self._constraints:
            ended = self._constraints.sums_of_team(block, self._team)
            self._dual = self._constraints.after(np, self.hyper, self._dual, ended)
            told = self._constraints.metrics(np, self.hyper, self._dual, ended)
            self._told = {n: float(value) for n, value in told.items() if np.isfinite(value)}
        self._renew_norm()

    def _renew_norm(self) -> None:
        from exarl.agents.compiled import to_device

        self.train_state = self._learning()._replace(norm=to_device(self._norm()))

    def _norm(self) -> dict[str, Array]:
        """What updates do to observations, rewards and costs before they learn from them."""
        own = self._constraints.norm(np, self.hyper, self._dual) if self._constraints else {}
        return {**self._normalizers.norm(np, self._moments), **own}

    def ended_schedules(self, steps: int, updates: int) -> Mapping[str, str]:
        run = self.total_steps, self.swept, steps, updates
        return ended_schedules(self.config, self.algorithm.schedule_ends(), *run)

    def _pop_weights(self, metrics: Metrics) -> Metrics:
        """Metrics of the updates; the new weights are removed and stored for ``get_weights``.

        Nothing waits: copies to the host begin when the updates have ended.
        """
        from exarl.agents.compiled import start_copy
        from exarl.agents.engine import WEIGHTS

        start_copy(metrics)
        self._flat = metrics.pop(WEIGHTS, None)  # type: ignore[assignment]
        return metrics

    def _report(self, updates: int, metrics: Metrics) -> Metrics:
        """What ``train`` returns."""
        now = self.algorithm.schedules(np, self.hyper, self._steps)
        shown = {name: float(value) for name, value in now.items() if name in self.metrics}
        before = self._updates_made - updates
        for loss in self.algorithm.losses:
            if -before % loss.every >= updates:  # no update was this loss's turn
                metrics = {n: value for n, value in metrics.items() if n not in loss.metrics}
        return {"updates": updates, **shown, **self._told, **metrics}

    def adopt(
        self, state: TrainState, moments: tuple[Moments, Moments], dual: Dual | None, steps: int
    ) -> None:
        """Take over what was learned elsewhere on the device in ``steps``; nothing waits for it."""
        self.train_state, self._flat = state, None
        self._moments, self._dual, self._steps = moments, dual or self._dual, steps

    # -- weights ------------------------------------------------------------------------------------

    def get_weights(self) -> np.ndarray:
        return self.weights_later()()

    def weights_later(self) -> Callable[[], np.ndarray]:
        if self.train_state is None:
            copy = self.policy.weights.copy()
            return lambda: copy
        if self._flat is None:
            state = self.train_state
            now = self._layout.pack(self._acting(state.params, state.target))
            return lambda: now
        flat, beside = self._flat, [np.ravel(a) for a in self._beside().values()]
        return lambda: np.concatenate([np.asarray(flat), *beside], dtype=np.float32)

    def acting_order(self, state: TrainState) -> list[Array]:
        """The parameters that acting needs, in the flat vector's order (JAX sorts dictionaries)."""
        params = self.algorithm.acting_params(state.params, state.target)
        return [params[name] for name, _ in self._layout.shapes if name in params]

    def _acting(self, params: Mapping[str, Array], target: Mapping[str, Array]) -> dict[str, Array]:
        return {**self.algorithm.acting_params(params, target), **self._beside()}

    def _beside(self) -> dict[str, Array]:
        """What acting needs beside parameters, which the host knows."""
        norm: dict[str, Array] = {}
        if self._normalizers.observations:
            own = self._normalizers.of_observations(np, self._moments[0])
            norm = {f"norm/{name}": array for name, array in own.items()}
        now = self.algorithm.schedules(np, self.hyper, self._steps)
        return {**norm, **{f"now/{name}": np.asarray(value, "f4") for name, value in now.items()}}

    def _learning(self) -> TrainState:
        assert self.train_state is not None, "set_learner comes first"
        return self.train_state

    @property
    def moments(self) -> tuple[Moments, Moments]:
        """The statistics of observations and returns."""
        return self._moments

    # -- keeping ------------------------------------------------------------------------------------

    def state(self) -> tuple[Arrays, dict[str, object]]:
        from exarl.agents.compiled import to_arrays

        replay = {f"replay/{name}": array for name, array in self.experience.state().items()}
        arrays = {"weights": self.get_weights(), **to_arrays(self._learning().stored)}
        numbers = {
            "steps": self._steps,
            "updates": self._updates_made,
            "rng": json_state(self._rng),
            **({"prior": dict(self.prior.sums)} if self.prior is not None else {}),
        }
        beside = normalizers.stored(self._moments) | self._constraints.stored(self._dual)
        return {**arrays, **beside, **replay}, numbers

    def restore(self, arrays: Arrays, numbers: dict[str, object]) -> None:
        """CheckpointError or ValueError, in one line, where the arrays are not those of this agent."""
        from exarl.agents.compiled import from_arrays

        if self.prior is not None:
            self.prior.check_same(numbers.get("prior"))
        replay = start.replay_in(arrays, self.config)
        self.train_state, self._flat = from_arrays(self._learning().stored, arrays), None
        self._moments = normalizers.restored(arrays)
        self._dual = self._constraints.restored(arrays)
        self.set_weights(arrays["weights"])
        self._steps, self._updates_made = int(numbers["steps"]), int(numbers["updates"])  # type: ignore[call-overload]
        if "rng" in numbers:
            restore_state(self._rng, numbers["rng"])  # type: ignore[arg-type]
        self.experience.restore(replay)
        self._filled = self._whole_blocks

    def start(self, arrays: Arrays, parts: Collection[str]) -> None:
        from exarl.agents.compiled import from_arrays, to_arrays, to_device

        own = self._learning().stored
        begun = start.begun_with(to_arrays(own), arrays, self._layout, parts)
        self._moments = start.moments_begun_with(self._moments, arrays, parts, self._normalizers)
        if start.REPLAY in parts:
            self.experience.restore(start.replay_to_begin_with(arrays, self.config))
        state = from_arrays(own, begun)
        self.train_state, self._flat = state._replace(norm=to_device(self._norm())), None
        self.set_weights(self.get_weights())
