"""The fused workflow: environments, acting, replay and updates in one compiled program.

For environments given as pure functions (Gymnasium's ``FuncEnv``). Nothing leaves the device but a few
numbers an iteration, which the host reads while the next iteration runs. Several agents, with seeds of
their own and swept parameters, may be trained at once: the program is then mapped over them.
"""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.learned import Learned
from exarl.config import param, schema_of
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.records.directory import writing
from exarl.training.divergence import NOT_FINITE
from exarl.training.recent import Window
from exarl.training.rounds import Report
from exarl.workflows.base import ExaWorkflow, Experiment
from exarl.workflows.population import Member, members, table_of


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
        " or '@FILE.csv' with a row a setting, and seeds if it has a column 'seed'",
    )
    devices: int = param(0, "how many of the devices there are to use; 0: all", ge=0)


class Fused(ExaWorkflow):
    """Everything on the device."""

    Config = FusedConfig
    one_rank = True

    def ready(self, learner: Experiment) -> None:
        agent, config = learner.agent, learner.config
        if not isinstance(agent, Learned) or type(agent).fused is Learned.fused:
            raise ConfigError(f"agent '{config.agent}' cannot learn in workflow 'fused'")
        if "target" in agent.recorded:
            raise ConfigError("data_generation must be learner in workflow 'fused'")
        if config.action_type == "fixed":
            raise ConfigError("action_type must be variable in workflow 'fused'")
        count = len(population_of(learner, agent, self.config))
        if count > 1 and config.eval_interval is not None:
            raise ConfigError("eval_interval is for one agent, not for a population")
        from exarl.agents import compiled  # first, since it sets JAX up
        from exarl.envs.device import functions_of

        functions_of(learner.envs[0])
        check_shares(count, self.config, config.envs_per_actor, compiled.jax.device_count())

    def run(self, learner: Experiment) -> None:
        agent = learner.loop.agent
        assert isinstance(agent, Learned)
        Driver(learner, agent, self.config).run()


class Driver:
    """Keeps the device busy: launches iterations and counts those that are done."""

    def __init__(self, learner: Experiment, agent: Learned, config: FusedConfig) -> None:
        from exarl.agents import compiled
        from exarl.envs.device import DeviceEnvs
        from exarl.workflows.fused_program import Program

        self._learner, self._agent, self._loop = learner, agent, learner.loop
        if hasattr(agent.config, "vtrace"):  # nothing lags
            agent.config = dataclasses.replace(agent.config, vtrace=False)
        self._members = population_of(learner, agent, config)
        envs = DeviceEnvs.of(learner.envs[0], learner.adapter)
        steps, window = learner.config.block_steps, learner.config.reward_window
        n_envs = config.n_envs or learner.config.envs_per_actor
        self._program = Program(agent, envs, n_envs, steps, window)
        self._block = n_envs * steps
        self._steps = self._loop.counters.steps
        self._queue: deque[Any] = deque()
        self._compiled = compiled
        self._carry, self._parameters, self._iterate = self._build(config.devices)
        if learner.states:
            self._carry = self._restored(learner.states)
        self._table = self.many or bool(config.sweep)
        self._rewards = np.full(len(self._members), np.nan)
        self._failed = np.zeros(len(self._members), bool)
        if self.many:
            self._show_population()
        if self._table and not learner.states:
            self._write_population()  # from now on the run knows its members

    @property
    def many(self) -> bool:
        return len(self._members) > 1

    def run(self) -> None:
        """Until the loop is finished; what was launched is always counted."""
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
        """Queue an iteration on the device; nothing is waited for."""
        now = np.float32(self._steps)
        with self._learner.clock.phase("device"):
            self._carry, found = self._iterate(self._carry, now, self._parameters)
        self._steps += self._block
        self._queue.append(found)
        if not self.many:
            self._take(self._carry.learned, self._carry.moments)

    def _count(self) -> None:
        """Wait for the oldest iteration under way, and tell the loop of it."""
        clock = self._learner.clock
        with clock.phase("device"):
            found = self._compiled.jax.device_get(self._queue.popleft())
        clock.moved()
        if not found.finite.any() and self._loop.watch.found is None:
            raise EnvironmentFailure("an environment returned NaN or infinity", "nan")
        ended = int(found.episodes.sum())
        self._rewards = np.atleast_2d(found.mean)[:, 0]
        if self.many:
            self._leave_out(~(found.finite & found.sound))
            self._rewards = np.where(self._failed, np.nan, self._rewards)
            fresh = (~self._failed & (found.episodes > 0)).nonzero()[0]
            returns, lengths = found.mean[fresh].T
        else:
            if not found.sound:
                self._loop.diverged(NOT_FINITE)
            newest = (~np.isnan(found.returns)).nonzero()[0][::-1]
            returns, lengths = found.returns[newest], found.lengths[newest]
        report = Report(
            blocks=1,
            steps=self._block,
            returns=returns.tolist(),
            lengths=lengths.astype(int).tolist(),
            lags=[0],
            unlisted=ended - len(returns),
        )
        told = {name: value[np.isfinite(value)] for name, value in found.metrics.items()}
        metrics = {name: float(value.mean()) for name, value in told.items() if value.size}
        updates = self._agent.updates_of(self._block, self._loop.counters.steps + self._block)
        self._loop.count(report, {**metrics, "updates": updates})

    def _keep(self) -> None:
        """A checkpoint; of a population, its members' results and the best one's policy too."""
        if self.many:
            best = int(np.nanargmax(np.where(np.isnan(self._rewards), -np.inf, self._rewards)))
            tree = self._compiled.jax.tree
            learned, moments = tree.map(
                lambda leaf: leaf[best], (self._carry.learned, self._carry.moments)
            )
            self._take(learned, moments)
        if self._table:
            self._write_population()
        self._loop.checkpoint(self._compiled.to_arrays(self._carry, "fused"))

    def _take(self, learned: Any, moments: Any) -> None:
        """Let the agent show what was learned; the replay is kept with the environments."""
        shown = {name: part for name, part in learned.items() if name != "replay"}
        self._agent.take(shown, moments, self._steps)

    # -- building -------------------------------------------------------------------------------

    def _build(self, count: int) -> tuple[Any, Any, Any]:
        """The first carry, the swept parameters, and the compiled iteration."""
        jax, program, agent = self._compiled.jax, self._program, self._agent
        from exarl.workflows.fused_program import with_parameters

        swept = [{n: v for n, v in m.items() if n != "seed"} for m in self._members]
        seeds = [int(m["seed"]) for m in self._members]
        firsts = [
            with_parameters(agent, one).first_params(seed)
            for one, seed in zip(swept, seeds, strict=True)
        ]
        params = {name: np.stack([first[name] for first in firsts]) for name in firsts[0]}
        parameters = {name: np.array([one[name] for one in swept], "f4") for name in swept[0]}
        words = np.array([seed % 2**32 for seed in seeds], np.uint32)
        start, iterate = jax.vmap(program.start), jax.vmap(program.iterate, (0, None, 0))
        if not self.many:
            start, iterate = program.start, program.iterate
            params, parameters, words = jax.tree.map(
                lambda leaf: leaf[0], (params, parameters, words)
            )
        carry = jax.jit(start)(params, words, parameters)
        placed = self._placement(carry, jax.devices()[: count or None])
        carry = jax.device_put(carry, placed)
        noticed = self._compiled.Noticed(lambda: self._loop.compiling(within="device"))
        run = noticed.jit(iterate, donate_argnums=0, out_shardings=(placed, None))
        return carry, parameters, noticed.call(run)

    def _placement(self, carry: Any, devices: list[Any]) -> Any:
        """Where each array lives: agents of a population, or environments, shared out evenly."""
        jax = self._compiled.jax
        mesh = jax.sharding.Mesh(np.array(devices), ("all",))
        split, whole = (jax.NamedSharding(mesh, jax.P(*axes)) for axes in (("all",), ()))
        if self.many:
            return jax.tree.map(lambda _: split, carry)
        placed = jax.tree.map(lambda _: whole, carry)
        by_env = (carry.world, carry.memory, carry.returns)
        world, memory, returns = jax.tree.map(lambda _: split, by_env)
        return placed._replace(world=world, memory=memory, returns=returns)

    def _restored(self, states: Any) -> Any:
        try:
            carry = self._compiled.from_arrays(self._carry, states, "fused")
        except ValueError as error:
            raise ConfigError(f"the checkpoint does not fit this run: {error}") from error
        placed = self._compiled.jax.tree.map(lambda leaf: leaf.sharding, self._carry)
        return self._compiled.jax.device_put(carry, placed)

    # -- populations ----------------------------------------------------------------------------

    def _show_population(self) -> None:
        count = len(self._members)
        window = Window(count)  # of each member its mean
        window.returns.extend(self._loop.window.returns)
        window.lengths.extend(self._loop.window.lengths)
        self._loop.window = window
        self._loop.note(f"{count:,} agents at once; steps are those of each")

    def _leave_out(self, failed: np.ndarray) -> None:
        """Agents that have diverged count no more, which does not end the others."""
        if (failed & ~self._failed).any():
            self._failed |= failed
            count, of = int(self._failed.sum()), f"of {len(self._members):,} agents"
            if count == len(self._members):
                self._loop.diverged("every agent of the population")
            else:
                self._loop.note(f"{count:,} {of} diverged; the others go on (population.csv: nan)")

    def _write_population(self) -> None:
        run = self._learner.run_directory
        aside = run.population.with_suffix(".tmp")
        with writing(run.path):
            aside.write_text(table_of(self._members, self._rewards.tolist()))
            os.replace(aside, run.population)


def population_of(learner: Experiment, agent: Learned, config: FusedConfig) -> list[Member]:
    """The agents to train at once; those of a run that goes on are those it began with."""
    parameters, table = schema_of(type(agent.config)), learner.run_directory.population
    return members(config.sweep, config.n_seeds, learner.config.seed, parameters, table)


def check_shares(agents: int, config: FusedConfig, envs_per_actor: int, available: int) -> None:
    """ConfigError when agents, or the environments of one, cannot be shared out among the devices."""
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
