"""Behaviour cloning: a policy, or action values, that do what was done in prior data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from exarl.agents.algorithm import Acting, Hyper, Loss, Noise, TrainState
from exarl.agents.blocks import AnyBlock
from exarl.agents.compiled import CompileObserver, copied
from exarl.agents.engine import Engine
from exarl.agents.offpolicy import OffPolicy, OffPolicyConfig
from exarl.types import Array, Arrays, Batch, Memory, Metrics, Namespace, Params

CLONE_LOSS = "clone_loss"


@dataclass(frozen=True)
class Cloning(OffPolicy[OffPolicyConfig]):
    """The algorithm ``of`` with another loss: it imitates the actions of the batch."""

    of: OffPolicy[OffPolicyConfig]

    def target(self, params: Params) -> Params:
        return {}

    def act(
        self,
        xp: Namespace,
        hyper: Hyper,
        acting: Acting,
        observations: Array,
        rng: Noise | None,
        memory: Memory | None,
    ) -> tuple[Array, dict[str, Array], Memory]:
        return self.of.act(xp, hyper, acting, observations, rng, memory)

    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        return self.of.rows(xp, hyper, block)

    @property
    def losses(self) -> tuple[Loss, ...]:
        acting, rate = self.of.acts_with[0], "policy_learning_rate"
        return (Loss((acting,), self.imitate, (CLONE_LOSS,), "clone", rate),)

    def imitate(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The algorithm's own measure of how unlike the actions of the batch its actions are."""
        loss = self.of.clone_loss(xp, hyper, params, batch)
        return loss, {CLONE_LOSS: loss}

    def after_update(self, hyper: Hyper, state: TrainState, complete: bool) -> TrainState:
        return state


class Cloner:
    """Owns the optimiser of cloning. Its batches come from a random stream of its own, so that all
    learners of a team make the same updates."""

    def __init__(
        self,
        of: OffPolicy[OffPolicyConfig],
        hyper: Hyper,
        rows: Mapping[str, np.ndarray],
        rng: np.random.Generator,
        observer: CompileObserver,
    ) -> None:
        self._of, self._rng, self._size = of, rng, of.config.batch_size
        self._rows: Arrays = {name: rows[name] for name in ("observation", "action")}
        engine = Engine(Cloning(of.spec, of.config, of.networks, of))
        self._engine, self._hyper = engine, hyper
        self._state: TrainState | None = None

        def run(state: TrainState, batches: Batch, updates: int) -> tuple[TrainState, Metrics]:
            return engine.run_block(hyper, state, batches, updates)

        self._run = observer.call(observer.jit(run, static=2))

    def learn(self, state: TrainState, updates: int) -> tuple[TrainState, Metrics]:
        """The state of training with its acting network, and the target's, after these updates."""
        before = self._state or self._engine.init(self._hyper, state.params, state.norm)
        count = len(self._rows["action"])
        places = self._rng.integers(count, size=(updates, self._size))
        batches = {name: array.take(places, axis=0) for name, array in self._rows.items()}
        self._state, metrics = self._run(before, batches, updates)
        params = copied(self._state.params)  # since training may donate its arrays
        return state._replace(params=params, target=copied(self._of.target(params))), metrics
