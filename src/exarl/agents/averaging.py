"""Updates of several learners: each makes its part, and all go on with the average."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from exarl.agents.base import Team
from exarl.agents.compiled import Plan, Update, counted, jax, jnp, summarised, updates_of


def slopes(plan: Plan, team: Team, jit: Callable[..., Any]) -> Update:
    """The slope of every update averaged."""
    ravel = jax.flatten_util.ravel_pytree

    @jit
    def flat_slope(state: Any, data: Any, i: Any) -> tuple[Any, Any]:
        slope, metrics = plan.gradient(state, plan.pick(data, i))
        return ravel(slope)[0], metrics

    @partial(jit, donate_argnums=0)
    def flat_apply(state: Any, vector: Any) -> Any:
        return plan.apply(state, ravel(plan.slope(state))[1](vector))

    prepare = jit(plan.prepare)

    def run(state: Any, inputs: Any, updates: int) -> tuple[Any, Any]:
        found: list[Any] = []
        if inputs is None:
            nothing = np.zeros(sum(np.size(a) for a in jax.tree.leaves(plan.slope(state))), "f4")
            for _ in range(updates):
                state = flat_apply(state, team.average(nothing, 0.0))
            return state, {}
        data = prepare(state, inputs)
        for update in range(updates):
            slope, metrics = flat_slope(state, data, update)
            found.append(metrics)
            state = flat_apply(state, team.average(np.asarray(slope), 1.0))
        return state, summarised(_stacked(found))

    return run


def states(plan: Plan, team: Team, jit: Callable[..., Any]) -> Update:
    """Updates made alone, and the states averaged every ``team.every`` of them."""
    ravel = jax.flatten_util.ravel_pytree
    alone = jit(partial(updates_of, plan), donate_argnums=0)
    prepare = jit(plan.prepare)

    def run(state: Any, inputs: Any, updates: int) -> tuple[Any, Any]:
        found: list[Any] = []
        data = None if inputs is None else prepare(state, inputs)
        for start in range(0, updates, team.every):
            numbers = jnp.arange(start, min(start + team.every, updates))
            if inputs is None:
                state = counted(state, len(numbers))
            else:
                state, metrics = alone(state, data, numbers)
                found.append(metrics)
            floats, restore = ravel(_floats(state))
            mean = team.average(np.asarray(floats), 0.0 if inputs is None else 1.0)
            state = _with_floats(state, restore(jnp.asarray(mean)))
        return state, _joined(found) if found else {}

    return run


def _stacked(found: list[Any]) -> Any:
    return {name: np.stack([np.asarray(m[name]) for m in found]) for name in found[0]}


def _joined(found: list[Any]) -> Any:
    """Of several stretches of updates: means of the means, the stacked ones end to end."""
    return {
        name: jnp.nanmean(jnp.stack([m[name] for m in found]))
        if np.ndim(found[0][name]) == 0
        else np.concatenate([m[name] for m in found])
        for name in found[0]
    }


def _floats(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _with_floats(tree: Any, floats: list[Any]) -> Any:
    fresh = iter(floats)
    return jax.tree.map(
        lambda leaf: next(fresh) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree
    )
