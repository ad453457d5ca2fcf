"""Learning the model of an environment from rows of transitions, as functions to be compiled.

Of every ten rows one, the same whenever rows are drawn, is held out: the networks never learn from it,
and their errors are measured on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exarl.agents.compiled import jax, jnp, optax, optimizer, scan
from exarl.learning.losses import bernoulli_nll, gaussian_nll
from exarl.learning.normalise import Moments, deviation, sums_around, with_sums
from exarl.networks.dynamics import Dynamics, Scales, chosen
from exarl.types import Array, Arrays, Batch, Params, PyTree

GROUP = 10
"""One row of this many is held out."""
TESTED = 512
"""Rows on which errors are measured."""
BOUNDS = 0.01
"""Weight of the distance between the bounds of the variance, which closes where it is not needed."""


class ModelState(NamedTuple):
    """Everything that learning the model changes; all of it is stored in a checkpoint."""

    params: Params
    optimizer: PyTree  # optax's state
    updates: Array  # int32, how many were made
    inputs: Moments  # of what the networks were given
    outputs: Moments  # of what they were to predict


class Assessment(NamedTuple):
    """How well a model predicts rows that were held out."""

    elites: Array  # the members with the least errors
    error: Array  # of the elites' mean: mean square, in deviations of the change
    persistence: Array  # the same of the prediction that nothing changes
    reward_error: Array  # mean square, in deviations of the reward
    disagreement: Array  # mean deviation between the elites, in deviations of the change
    useful: Array  # bool: whether the model predicts better than persistence


def held_out(group: Array) -> Array:
    """The place of the row that is held out of each group."""
    mixed = jnp.asarray(group, jnp.uint32) * jnp.uint32(2654435761) >> 16
    return group * GROUP + (mixed % GROUP).astype(jnp.int32)


def terminated(rows: Batch, gamma: float | Array) -> Array:
    """Which transitions ended their episode, so that nothing is discounted after them."""
    return rows["discount"] < 0.5 * gamma


@dataclass(frozen=True)
class WorldModel:
    """How an ensemble learns; rows are transitions as an off-policy algorithm keeps them."""

    dynamics: Dynamics
    elites: int
    batch_size: int
    learning_rate: float
    gamma: float | Array = 1.0
    weight_decay: float = 1e-4

    def init(self, rng: np.random.Generator) -> ModelState:
        params: Arrays = self.dynamics.init(rng)
        # Moments are summed in float32, as they are on the device.
        none = [Moments.none((size,)) for size in (self.dynamics.inputs, self.dynamics.outputs)]
        inputs, outputs = jax.tree.map(jnp.float32, none)
        return ModelState(params, self._optimizer.init(params), jnp.int32(0), inputs, outputs)

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return optimizer("adamw", self.learning_rate, None, weight_decay=self.weight_decay)

    def scaling(self, state: ModelState) -> Scales:
        return scaling_of(state.inputs, state.outputs)

    def given(self, rows: Batch) -> tuple[Array, Array, Array]:
        """What the networks are given of rows [N, ...], what they are to predict, and who ended."""
        seen, following = rows["observation"], rows["next_observation"]
        inputs = self.dynamics.encoded(jnp, seen, rows["action"])
        targets = self.dynamics.targets(seen, following, rows["reward"], jnp)
        return inputs, targets, terminated(rows, self.gamma)

    def seen(self, state: ModelState, rows: Batch) -> ModelState:
        """The state with its moments after more rows."""
        inputs, targets, _ = self.given(rows)
        return state._replace(
            inputs=with_sums(state.inputs, sums_around(state.inputs, inputs, jnp), jnp),
            outputs=with_sums(state.outputs, sums_around(state.outputs, targets, jnp), jnp),
        )

    def trained(
        self, state: ModelState, rows: Batch, size: int | Array, key: Array, updates: int
    ) -> tuple[ModelState, Array]:
        """The state after ``updates`` from the first ``size`` rows, and the mean loss; each member
        learns from batches of its own. Update n draws with a key made of ``key`` and n."""
        if not updates:
            return state, jnp.float32(np.nan)
        optimiser, scaling = self._optimizer, self.scaling(state)
        shape = (self.dynamics.members, self.batch_size)

        def step(now: ModelState, _: None) -> tuple[ModelState, Array]:
            own = jax.random.fold_in(key, now.updates)
            places = jax.random.randint(own, shape, 0, jnp.maximum(size, 1))
            weight = (places != held_out(places // GROUP)).astype(jnp.float32)
            batch = {name: array[places.ravel()] for name, array in rows.items()}
            loss, grads = jax.value_and_grad(self.loss)(now.params, scaling, batch, weight)
            moves, opt = optimiser.update(grads, now.optimizer, now.params)
            params: Params = optax.apply_updates(now.params, moves)  # type: ignore[assignment]
            return now._replace(params=params, optimizer=opt, updates=now.updates + 1), loss

        state, losses = scan(step, state, jnp.zeros(updates))
        return state, losses.mean()

    def loss(self, params: Params, scaling: Scales, batch: Batch, weight: Array) -> Array:
        """The sum over members of the mean loss of each; ``batch`` [members x N] and ``weight``
        [members, N] have the rows of one member after those of another."""
        members = len(weight)
        inputs, targets, ended = self.given(batch)
        targets = (targets - scaling.out_mean) / scaling.out_std
        targets, ended = targets.reshape(*weight.shape, -1), ended.reshape(weight.shape)
        found = self.dynamics.apply(jnp, params, scaling, inputs.reshape(*weight.shape, -1))
        each = gaussian_nll(jnp, found.mean, found.log_var, targets).mean(-1)
        each = each + bernoulli_nll(jnp, found.ends, ended)
        mean = (weight * each).sum(1) / jnp.maximum(weight.sum(1), 1)
        room = jnp.asarray(params["log_var/high"] - params["log_var/low"]).sum()
        return mean.sum() / members + BOUNDS * room

    def assess(self, state: ModelState, rows: Batch, size: int | Array, key: Array) -> Assessment:
        """Errors on rows that were held out of the first ``size``."""
        groups = size // GROUP
        places = held_out(jax.random.randint(key, (TESTED,), 0, jnp.maximum(groups, 1)))
        inputs, targets, _ = self.given({name: array[places] for name, array in rows.items()})
        scaling = self.scaling(state)
        return self.compared(state.params, scaling, inputs, targets, groups > 0)

    def compared(
        self, params: Params, scaling: Scales, inputs: Array, targets: Array, some: bool | Array
    ) -> Assessment:
        """The assessment on these rows; the model is useful only if there are ``some``."""
        found = self.dynamics.apply(jnp, params, scaling, inputs).mean  # [members, N, outputs]
        wanted = (targets - scaling.out_mean) / scaling.out_std
        elites = jnp.argsort(((found - wanted) ** 2).mean((1, 2)))[: self.elites]
        best = found[elites]
        errors = ((best.mean(0) - wanted) ** 2).mean(0)
        unchanged = -scaling.out_mean / scaling.out_std
        error = errors[:-1].mean()
        persistence = ((unchanged - wanted)[:, :-1] ** 2).mean()
        spread = best.std(0)[:, :-1].mean()
        return Assessment(
            elites, error, persistence, errors[-1], spread, some & (error < persistence)
        )

    def elites_of(self, state: ModelState, found: Assessment, first: Array) -> Params:
        """The parameters of the elites, in their order from the ``first`` on."""
        return chosen(state.params, jnp.roll(found.elites, -first))


def scaling_of(inputs: Moments, outputs: Moments) -> Scales:
    """How numbers are scaled, by the moments of what was seen."""
    return Scales(inputs.mean, deviation(jnp, inputs), outputs.mean, deviation(jnp, outputs))
