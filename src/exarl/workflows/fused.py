"""The fused workflow: environments, acting, replay and updates in one compiled program.

For environments given as pure functions (Gymnasium's ``FuncEnv``). Only a few numbers per iteration
leave the device, which the host reads while the next iteration runs. Several agents, each with its own
seed and parameters, may be trained at once: the program is then mapped over them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import AlgorithmConfig, Hyper
from exarl.agents.optimizers import check_optimizer
from exarl.config import param, schema_of
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.records.directory import writing
from exarl.records.replacing import replacing
from exarl.training.divergence import NOT_FINITE
from exarl.training.process import Learner, RunOutcome, RunProcess
from exarl.training.rounds import Report
from exarl.types import Array, Arrays, EpisodeInfo, PyTree
from exarl.workflows.base import ExaWorkflow
from exarl.workflows.population import Member, members, table_of

if TYPE_CHECKING:
    from exarl.envs.device import Sums
    from exarl.workflows.fused_program import Carry, IterationReport

    Iterate = Callable[[Carry, Array, Array, Hyper, int], tuple[Carry, IterationReport]]


_TOLD = "fused/world/told"
"""Where a checkpoint has the numbers of info of running episodes."""
BEGUN = "simulations_total"
"""The column of the episodes begun, which other workflows read from blocks."""


@dataclass(frozen=True)
class FusedConfig:
    """Parameters of the fused workflow."""

    n_envs: int | None = param(
        None,
        "environments on the device; null: envs_per_actor, which the settings fit",
        ge=1,
        le=2**24,
    )
    n_seeds: int = param(1, "agents trained at once: seed, seed + 1, ...", ge=1, le=10**6)
    sweep: str = param(
        "",
        "agents trained at once with different parameters, every combination with every seed:"
        " 'learning_rate=1e-4:1e-2:8:log;gamma=0.9,0.99' (from:to:how many, or a list);"
        " or '@FILE.csv' with one row per setting, and seeds if it has a column 'seed'",
    )
    devices: int = param(0, "how many of the available devices to use; 0: all", ge=0)


class Fused(ExaWorkflow):
    """Everything on the device."""

    Config = FusedConfig
    one_rank = True

    def ready(self, process: RunProcess) -> None:
        agent, config = process.agent, process.config
        if not isinstance(agent, NetworkAgent):
            raise ConfigError(f"agent '{config.agent}' cannot learn in workflow 'fused'")
        if agent.algorithm.generated:
            raise ConfigError("data_generation must be learner in workflow 'fused'")
        if config.action_type == "fixed":
            raise ConfigError("action_type must be variable in workflow 'fused'")
        if config.residual is not None:
            raise ConfigError("residual cannot be used in workflow 'fused': use another workflow")
        for name in ("weights", "preferences"):
            if getattr(config, name):
                raise ConfigError(
                    f"{name} cannot be used in workflow 'fused': use another workflow"
                )
        population = population_of(process, agent, self.config)
        count = len(population)
        check_optimizer(agent.config, process.config.total_steps, population[0])
        for name in ("eval_interval", "log_info", "start_from"):
            if count > 1 and getattr(config, name):
                raise ConfigError(f"{name} is for one agent, not for a population")
        if "replay" in config.start_parts:
            raise ConfigError("start_parts cannot have replay in workflow 'fused'")
        from exarl.agents import compiled  # first, since it sets JAX up
        from exarl.envs.device import DeviceEnvs

        assert process.adapter is not None
        DeviceEnvs.of(process.envs[0], process.adapter, costs=agent.costs)
        check_shares(count, self.config, config.envs_per_actor, compiled.jax.device_count())

    def learn(self, learner: Learner) -> RunOutcome:
        agent = learner.loop.agent
        assert isinstance(agent, NetworkAgent)
        Driver(learner, agent, self.config).run()
        return RunOutcome()


class Driver:
    """Keeps the device busy: launches iterations and counts those that have ended."""

    def __init__(
        self, learner: Learner, agent: NetworkAgent[AlgorithmConfig], config: FusedConfig
    ) -> None:
        from exarl.agents import compiled
        from exarl.envs.device import DeviceEnvs
        from exarl.workflows.fused_program import FusedProgram

        self._learner, self._agent, self._loop = learner, agent, learner.loop
        self._members = population_of(learner, agent, config)
        agent.swept = tuple(self._members[0])
        assert learner.adapter is not None
        logged, costs = learner.config.log_info, agent.costs
        envs = DeviceEnvs.of(learner.envs[0], learner.adapter, logged, costs)
        steps, window = learner.config.block_steps, learner.config.reward_window
        n_envs = config.n_envs or learner.config.envs_per_actor
        self._program = FusedProgram.of(agent, envs, n_envs, steps, window)
        self._n_envs, self._block = n_envs, n_envs * steps
        self._before = n_envs * agent.lead_steps  # steps that give no windows to learn from yet
        self._steps = self._loop.counters.steps
        # As many as are compiled while there are none to make.
        self._updates = max(1, agent.algorithm.n_updates(self._block, sys.maxsize))
        self._queue: deque[IterationReport] = deque()
        self._compiled = compiled
        self._carry, self._parameters, self._iterate = self._build(config.devices)
        if learner.states:
            self._carry = self._restored(learner.states)
        elif learner.config.start_from:
            self._carry = self._begun(agent)
        self._table = self.many or bool(config.sweep)
        self._rewards = np.full(len(self._members), np.nan)
        self._failed = np.zeros(len(self._members), bool)
        if self.many:
            self._show_population()
        if self._table and not learner.states:
            self._write_population()  # a resumed run trains the same members

    @property
    def many(self) -> bool:
        return len(self._members) > 1

    def run(self) -> None:
        """Train until the loop is finished; every launched iteration is counted."""
        loop = self._loop
        while not loop.finished:
            limit = self._learner.config.total_steps
            more = limit is None or self._steps < limit
            if more:
                self._launch()
            if len(self._queue) > 1 or not more:
                self._count()
            if loop.finished or loop.checkpoint_due():
                while self._queue:
                    self._count()
                self._keep()

    def _launch(self) -> None:
        """Queue an iteration on the device without waiting."""
        now = np.array(self._steps, np.float32)
        due = self._due(self._steps)
        self._updates = due or self._updates
        with self._learner.clock.phase("device"):
            self._carry, report = self._iterate(
                self._carry, now, np.array(due > 0), self._parameters, self._updates
            )
        self._steps += self._block
        self._queue.append(report)
        if not self.many:
            carry = self._carry
            self._agent.adopt(carry.train, carry.moments, carry.dual, self._steps)

    def _count(self) -> None:
        """Wait for the oldest launched iteration and report it to the loop."""
        clock = self._learner.clock
        with clock.phase("device"):
            done = self._compiled.jax.device_get(self._queue.popleft())
        clock.moved()
        if not done.finite.any() and self._loop.watch.found is None:
            raise EnvironmentFailure("an environment returned NaN or infinity", "nan")
        ended = int(done.episodes.sum())
        first = 0 if self._loop.counters.totals[BEGUN] else self._n_envs * len(self._members)
        self._rewards = np.atleast_2d(done.mean)[:, 0]
        if self.many:
            self._exclude(~(done.finite & done.sound))
            self._rewards = np.where(self._failed, np.nan, self._rewards)
            fresh = (~self._failed & (done.episodes > 0)).nonzero()[0]
            returns, lengths = done.mean[fresh].T
        else:
            if not done.sound:
                self._loop.diverged(NOT_FINITE)
            newest = (~np.isnan(done.returns)).nonzero()[0][::-1]
            returns, lengths = done.returns[newest], done.lengths[newest]
        report = Report(
            blocks=1,
            steps=self._block,
            returns=returns.tolist(),
            lengths=lengths.astype(int).tolist(),
            lags=[0],
            unlisted=ended - len(returns),
            info=told_of(done.info),
            totals={BEGUN: ended + first},
        )
        finite = {name: value[np.isfinite(value)] for name, value in done.metrics.items()}
        metrics = {name: float(value.mean()) for name, value in finite.items() if value.size}
        updates = self._due(self._loop.counters.steps)
        self._loop.count(report, {**metrics, "updates": updates})

    def _due(self, before: int) -> int:
        """The updates of the iteration that follows this many steps."""
        made = before + self._block
        return self._agent.algorithm.n_updates(self._block, made) if made > self._before else 0

    def _keep(self) -> None:
        """Write a checkpoint; of a population also the members' results and the best one's policy."""
        if self.many:
            best = int(np.nanargmax(np.where(np.isnan(self._rewards), -np.inf, self._rewards)))
            tree = self._compiled.jax.tree
            learned = (self._carry.train, self._carry.moments, self._carry.dual)
            train, moments, dual = tree.map(lambda leaf: leaf[best], learned)
            self._agent.adopt(train, moments, dual, self._steps)
        if self._table:
            self._write_population()
        self._loop.checkpoint(self._compiled.to_arrays(self._carry, "fused"))

    # -- building -------------------------------------------------------------------------------

    def _build(self, count: int) -> tuple[Carry, Hyper, Iterate]:
        """The first carry, the swept parameters, and the compiled iteration."""
        jax, program, agent = self._compiled.jax, self._program, self._agent
        swept = [{n: v for n, v in m.items() if n != "seed"} for m in self._members]
        seeds = [int(m["seed"]) for m in self._members]
        firsts = [
            agent.first_params(seed, {**agent.hyper, **one})
            for one, seed in zip(swept, seeds, strict=True)
        ]
        params = {name: np.stack([first[name] for first in firsts]) for name in firsts[0]}
        parameters = {name: np.array([one[name] for one in swept], "f4") for name in swept[0]}
        keys = np.array([seed % 2**32 for seed in seeds], np.uint32)
        start, many = jax.vmap(program.start), self.many
        if not many:
            start = program.start
            params, parameters, keys = jax.tree.map(
                lambda leaf: leaf[0], (params, parameters, keys)
            )
        carry = jax.jit(start)(params, keys, parameters)
        placed = self._placement(carry, jax.devices()[: count or None])
        carry = jax.device_put(carry, placed)

        def iterate(
            carry: Carry, steps: Array, learns: Array, swept: Hyper, updates: int
        ) -> tuple[Carry, IterationReport]:
            one = partial(program.iterate, updates=updates)
            return (jax.vmap(one, (0, None, None, 0)) if many else one)(carry, steps, learns, swept)

        observer = self._compiled.CompileObserver(lambda: self._loop.compiling(within="device"))
        run = observer.jit(iterate, donate=0, static=4, out_shardings=(placed, None))
        return carry, parameters, observer.call(run)

    def _placement(self, carry: Carry, devices: Sequence[object]) -> PyTree:
        """The device of each array: agents of a population, or environments, are divided evenly."""
        jax = self._compiled.jax
        mesh = jax.sharding.Mesh(np.array(devices), ("all",))
        split, whole = (jax.NamedSharding(mesh, jax.P(*axes)) for axes in (("all",), ()))
        if self.many:
            return jax.tree.map(lambda _: split, carry)
        placed = jax.tree.map(lambda _: whole, carry)
        by_env = (carry.world, carry.memory, carry.returns)
        world, memory, returns = jax.tree.map(lambda _: split, by_env)
        along = jax.NamedSharding(mesh, jax.P(None, "all"))
        lead = jax.tree.map(lambda _: along, carry.lead)
        return placed._replace(world=world, memory=memory, returns=returns, lead=lead)

    def _restored(self, states: Arrays) -> Carry:
        """The carry of a checkpoint; ConfigError, in one line, when it does not fit."""
        parts = {"fused/lead": self._carry.lead, _TOLD: self._carry.world.told}
        unknown = {n: a for p in parts for n, a in self._compiled.to_arrays(parts[p], p).items()}
        # A checkpoint of before there were leads has none; log_info may be another than it was.
        states = {n: a for n, a in states.items() if n in unknown or not n.startswith(_TOLD)}
        try:
            carry = self._compiled.from_arrays(self._carry, {**unknown, **states}, "fused")
        except ValueError as error:
            raise ConfigError(f"the checkpoint does not fit this run: {error}") from error
        placed = self._compiled.jax.tree.map(lambda leaf: leaf.sharding, self._carry)
        restored: Carry = self._compiled.jax.device_put(carry, placed)
        return restored

    def _begun(self, agent: NetworkAgent[AlgorithmConfig]) -> Carry:
        """The first carry with what the agent begins with of another run."""
        own, jax = self._carry, self._compiled.jax
        assert agent.train_state is not None
        moments = jax.tree.map(np.float32, agent.moments)
        begun = own._replace(train=agent.train_state, moments=moments)
        placed: Carry = jax.device_put(begun, jax.tree.map(lambda leaf: leaf.sharding, own))
        return placed

    # -- populations ----------------------------------------------------------------------------

    def _show_population(self) -> None:
        count = len(self._members)
        self._loop.resize_window(count)  # it holds the mean of each member
        self._loop.note(f"{count:,} agents at once; steps are those of each")

    def _exclude(self, failed: np.ndarray) -> None:
        """Stop counting agents that have diverged; the others go on."""
        if (failed & ~self._failed).any():
            self._failed |= failed
            count, of = int(self._failed.sum()), f"of {len(self._members):,} agents"
            if count == len(self._members):
                self._loop.diverged("every agent of the population")
            else:
                self._loop.note(f"{count:,} {of} diverged; the others go on (population.csv: nan)")

    def _write_population(self) -> None:
        run = self._learner.run_directory
        with writing(run.path), replacing(run.population) as aside:
            aside.write_text(table_of(self._members, self._rewards.tolist()))


def told_of(sums: Sums) -> list[EpisodeInfo]:
    """The numbers of info of the newest episodes [W, 5], oldest first."""
    episodes: list[EpisodeInfo] = []
    for at in range(max(map(len, sums.values()), default=0)):
        found = {name: array[at].tolist() for name, array in sums.items() if array[at, 1] > 0}
        episodes += [found] if found else []
    return episodes[::-1]


def population_of(
    process: RunProcess, agent: NetworkAgent[AlgorithmConfig], config: FusedConfig
) -> list[Member]:
    """The agents to train at once; a resumed run has those that it began with."""
    parameters, table = schema_of(type(agent.config)), process.run_directory.population
    return members(config.sweep, config.n_seeds, process.config.seed, parameters, table)


def check_shares(agents: int, config: FusedConfig, envs_per_actor: int, available: int) -> None:
    """ConfigError when agents, or the environments of one, cannot be divided among the devices."""
    devices = config.devices or available
    if devices > available:
        raise ConfigError(f"devices={devices}, but JAX sees {available}")
    shared, what, key = agents, "agents", "n_seeds"
    if agents == 1:
        shared, what, key = config.n_envs or envs_per_actor, "environments", "n_envs"
    if shared % devices:
        raise ConfigError(
            f"{shared} {what} cannot be shared out among {devices} devices: change {key} or devices"
        )
