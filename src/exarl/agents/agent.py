"""The agents that learn by gradients: ``ExaAgent`` over an algorithm, a policy and an engine."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from exarl.agents import normalizers
from exarl.agents.algorithm import Algorithm, AlgorithmConfig, TrainState, hyper_of
from exarl.agents.base import ExaAgent, MakeNetwork, Spread, Team
from exarl.agents.constraints import Constraints
from exarl.agents.experience import Experience, FreshBlocks, HostReplay
from exarl.agents.normalizers import Normalizers
from exarl.agents.offpolicy import OffPolicyConfig, check_devices, share_of
from exarl.agents.optimizers import check_optimizer, follows_run, step_size_end
from exarl.agents.policy import NetworkPolicy, Parts, by_part, changed, recalled
from exarl.config import LearnerConfig
from exarl.errors import CheckpointError, ConfigError
from exarl.export.policy import Policy
from exarl.learning.exploration import LEARNER, Streams, generator, json_state, restore_state
from exarl.learning.normalise import Moments
from exarl.networks import ParamLayout
from exarl.networks.network import Network
from exarl.networks.precision import Reduced
from exarl.types import Array, Arrays, ArraySpec, Block, EnvSpec, Metrics

if TYPE_CHECKING:
    from exarl.agents.compiled import CompileObserver
    from exarl.agents.engine import Engine

LEARNS_ALONE = "replay_device must be host with several learners (learner_procs)"

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
        self.metrics = (*type(self).metrics, *self._constraints.columns)
        make = network if config.precision == "float32" else _reduced(network)
        self.algorithm = self.make_algorithm(spec, config, make)
        self.hyper = hyper_of(self.algorithm.config)
        recalls = recalled(self.algorithm)
        if recalls and not self.algorithm.recurrent:
            name = type(self).__name__
            raise ConfigError(f"{name} cannot learn with a network that has memory: use an MLP")
        self.memory = self.algorithm.memory
        self.lead_steps = self.algorithm.lead_steps
        kept = {f"memory/{name}": spec for name, spec in self.memory.items() if name in recalls}
        self.recorded = {**self.algorithm.recorded, **kept}
        if config.normalize_rewards:
            self.return_discount = config.gamma
            self.recorded = {**self.recorded, "discounted_return": ArraySpec((), "float32")}
        self._steps = 0
        self._moments = self._normalizers.first()
        self._multipliers = self._constraints.first
        self._told: dict[str, float] = {}  # of the constraints
        self._first = self.first_params(seed, self.hyper)
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
            if config.n_step > run.block_steps and run.model_type == "LSTM":
                raise ConfigError(
                    f"n_step={config.n_step} needs block_steps >= n_step, not {run.block_steps}, with"
                    " an LSTM, which learns from whole blocks"
                )
            if learners > 1 and config.replay_device == "device":
                raise ConfigError(LEARNS_ALONE)
            check_devices(config, run.workflow, learners)
            if learners > config.batch_size:
                raise ConfigError(
                    f"batch_size={config.batch_size} cannot be shared by learner_procs={learners}:"
                    " each learner needs at least one transition of a batch"
                )
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

        state = self._learning()
        everything = self._acting(state.params, state.target)
        return by_part(self.algorithm.acts_with, compiled.copied(everything))

    def exported(self) -> Policy:
        """The greedy policy for other programs; ValueError when the network cannot be exported, or a
        subclass acts otherwise."""
        if (name := changed(type(self), "action", ("exported",))) is not None:
            raise ValueError(f"{name} changes action(): give it an exported() of its own")
        return self.policy.exported()

    def prepare(self, block: Block, spread: Spread | None = None) -> Block:
        if not self.algorithm.generated:
            return block
        rows = _on_host(self.algorithm.generate_from(np, self.hyper, block))
        together = spread is not None and self.algorithm.generates_in_group
        made = spread(rows) if together and spread is not None else self.generate(rows)
        shape = block.rewards.shape
        added = {name: a.reshape(*shape, *a.shape[1:]) for name, a in made.items()}
        return dataclasses.replace(block, recorded={**block.recorded, **added})

    def generate(self, rows: Arrays) -> Arrays:
        return _on_host(self.algorithm.generate(np, self.hyper, self.policy.acting, rows))

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
        team = self._team
        self._rng = generator(self.seed, LEARNER, 1, team.index if team else 0)
        self._steps, self._updates_made, self._flat = 0, 0, None
        self._filled = not self.lead_steps  # whether there surely is something to learn from
        loaded = self._layout.unpack(self.policy.weights)
        params = {name: loaded.get(name, array) for name, array in self._first.items()}
        engine = Engine(self.algorithm)
        norm = self._norm()
        self.train_state = to_device(engine.init(self.hyper, params, norm))
        # The learner of a run sets ``compiling`` after this.
        observer = CompileObserver(lambda: self.compiling())  # noqa: PLW0108
        self.experience = self._make_experience(engine, observer)

    def _make_experience(self, engine: Engine, observer: CompileObserver) -> Experience:
        from exarl.agents.updates import compile_updates, on_devices

        cfg, team = self.config, self._team
        if isinstance(cfg, OffPolicyConfig) and cfg.replay_device == "device":
            from exarl.agents.device_experience import DeviceReplay

            seed = int(self._rng.integers(2**32))
            return DeviceReplay(engine, self.hyper, self.acting_order, observer, seed)
        index, learners = (team.index, team.size) if team else (0, 1)
        size, weight = 0, 1.0
        if isinstance(cfg, OffPolicyConfig):
            size = share_of(cfg.batch_size, index, learners)
            weight = size * learners / cfg.batch_size  # 1 unless there is a remainder
        update = compile_updates(engine, self.hyper, team, self.acting_order, observer, weight)
        if isinstance(cfg, OffPolicyConfig):
            if cfg.learner_devices > 1:
                update = on_devices(update, cfg.learner_devices)
            return HostReplay(self.algorithm, self.hyper, update, self._rng, size)
        return FreshBlocks(self.algorithm, update, self._rng)

    def train(self, block: Block) -> Metrics:
        return self.train_in_team(block, block.steps)

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        rows = None
        if block is not None:
            rows = _on_host(self.algorithm.rows(np, self.hyper, block))
        self.update_normalizers(block)
        if follows_run(self.config) and self.total_steps is not None:
            self.train_state = self._learning()._replace(progress=self._progress())
        self._steps += steps
        updates = self.algorithm.n_updates(steps, self._steps)
        if not updates or not self._can_learn(rows):
            self.experience.add(rows)
            return self._report(0, {})
        made = self._updates_made
        self.train_state, metrics = self.experience.learn(self._learning(), rows, updates, made)
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

    def _progress(self) -> Array:
        """The part of the run's steps that is made."""
        assert self.total_steps is not None
        return np.float32(self._steps / self.total_steps)  # type: ignore[return-value]

    def update_normalizers(self, block: Block | None) -> None:
        """Let the normalisers see a block; all learners of a team call it and see all blocks."""
        if not (self._normalizers.used or self._constraints):
            return
        from exarl.agents.compiled import to_device

        if self._normalizers.used:
            sums = self._normalizers.sums_of_team(self._moments, block, self._team)
            self._moments = self._normalizers.after(np, self._moments, sums)
        if self._constraints:
            ended = self._constraints.sums(block, self._team)
            self._multipliers = self._constraints.after(self._multipliers, ended)
            self._told = self._constraints.metrics(self._multipliers, ended)
        self.train_state = self._learning()._replace(norm=to_device(self._norm()))

    def _norm(self) -> dict[str, Array]:
        """What updates do to observations, rewards and costs before they learn from them."""
        norm = self._normalizers.norm(np, self._moments)
        return {**norm, **self._constraints.norm(self._multipliers)} if self._constraints else norm

    def ended_schedules(self, steps: int, updates: int) -> Mapping[str, str]:
        cfg, total = self.config, self.total_steps
        if cfg.learning_rate_fraction and total is None:
            constant = (
                f"the step size stays {cfg.learning_rate:.3g}: its schedule needs total_steps"
            )
            return {"the step size": constant}
        ends = [e for e in self.algorithm.schedule_ends() if not {*e.parameters} & {*self.swept}]
        if (end := step_size_end(cfg, total, self.swept)) is not None:
            ends.append(end)
        over = [e for e in ends if steps >= e.steps or updates >= e.updates]
        return {end.what: end.told(steps, total) for end in over}

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

    def adopt(self, state: TrainState, moments: tuple[Moments, Moments], steps: int) -> None:
        """Take over what was learned elsewhere on the device in ``steps``; nothing waits for it."""
        self.train_state, self._flat = state, None
        self._moments, self._steps = moments, steps

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

    # -- keeping ------------------------------------------------------------------------------------

    def state(self) -> tuple[Arrays, dict[str, object]]:
        from exarl.agents.compiled import to_arrays

        replay = {f"replay/{name}": array for name, array in self.experience.state().items()}
        arrays = {"weights": self.get_weights(), **to_arrays(_stored(self._learning()))}
        numbers = {
            "steps": self._steps,
            "updates": self._updates_made,
            "rng": json_state(self._rng),
        }
        beside = normalizers.stored(self._moments) | self._constraints.stored(self._multipliers)
        return {**arrays, **beside, **replay}, numbers

    def restore(self, arrays: Arrays, numbers: dict[str, object]) -> None:
        """CheckpointError or ValueError, in one line, where the arrays are not those of this agent."""
        from exarl.agents.compiled import from_arrays

        replay = {n.removeprefix("replay/"): a for n, a in arrays.items() if n[:7] == "replay/"}
        if isinstance(self.config, OffPolicyConfig):
            there = "device" if "seed" in replay else "host"
            if there != self.config.replay_device:
                raise CheckpointError(
                    f"the checkpoint is of a run with replay_device {there}, not"
                    f" {self.config.replay_device}"
                )
        self.train_state, self._flat = from_arrays(_stored(self._learning()), arrays), None
        self._moments = normalizers.restored(arrays)
        self._multipliers = self._constraints.restored(arrays)
        self.set_weights(arrays["weights"])
        self._steps, self._updates_made = int(numbers["steps"]), int(numbers["updates"])  # type: ignore[call-overload]
        if "rng" in numbers:
            restore_state(self._rng, numbers["rng"])  # type: ignore[arg-type]
        self.experience.restore(replay)
        self._filled = not self.lead_steps


def _stored(state: TrainState) -> TrainState:
    """What a checkpoint has of a state: not the progress, which a longer run counts otherwise."""
    return state._replace(progress=None)


def _reduced(make: MakeNetwork) -> MakeNetwork:
    def reduced(outputs: int, extra: int = 0) -> Network:
        return Reduced(make(outputs, extra=extra) if extra else make(outputs))

    return reduced


def _on_host(arrays: Mapping[str, Array]) -> Arrays:
    """Arrays that are NumPy's already, for the type checker."""
    return dict(arrays)  # type: ignore[arg-type]
