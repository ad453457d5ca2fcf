"""Rollouts of a policy in a model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.learning import continuous_spec, make_agent, random_block

from exarl.agents import device_replay
from exarl.agents.policy import acting_in_training
from exarl.agents.world_model import Assessment
from exarl.learning.exploration import Streams
from exarl.types import Array

COUNT = 6
SMALL: dict[str, Any] = {
    "model_hidden": (8,),
    "model_members": 3,
    "model_elites": 2,
    "model_batch_size": 16,
    "rollouts_per_step": 4,
}


def never(xp: Any, observation: Array, action: Array, following: Array) -> Array:
    return xp.zeros(len(observation), bool)


def always(xp: Any, observation: Array, action: Array, following: Array) -> Array:
    return xp.ones(len(observation), bool)


def paid(xp: Any, observation: Array, action: Array, following: Array) -> Array:
    return 3 + action[:, 0]


def rollouts(horizon: int, low: float = -10.0, **parameters: Any) -> dict[str, np.ndarray]:
    """The imagined transitions of a model that is not trained, from states that are all 0; ``low`` is
    the lower bound of the logarithm of its variance."""
    spec = continuous_spec()
    agent = make_agent(spec, id="MBPO-v0", learner=True, **SMALL, **parameters)
    imagination, state = agent.experience._imagination, agent.train_state
    rows = agent.algorithm.rows(np, agent.hyper, random_block(spec, 0))
    like = {name: array[:1] for name, array in rows.items()}
    real = device_replay.add_to_ring(
        device_replay.empty_ring(4, like), jax.tree.map(np.zeros_like, like)
    )
    acting = acting_in_training(jnp, agent.algorithm, agent.hyper, state, np.float32(1e6))
    nothing = np.float32(0)
    found = Assessment(np.arange(2), nothing, nothing, nothing, nothing, np.True_)
    model = agent.experience._model
    model = model._replace(params={**model.params, "log_var/low": jnp.full(4, low)})
    make = jax.jit(
        lambda model, empty, key, horizon: imagination.rollouts(
            agent.hyper, acting, (model, found), real, empty, key, horizon, COUNT
        )
    )
    ring = make(model, device_replay.empty_ring(40, like), jax.random.key(0), np.int32(horizon))
    return {name: np.asarray(array)[: int(ring.size)] for name, array in ring.rows.items()}


def test_rollouts_go_on_to_the_horizon() -> None:
    horizon = 4
    found = rollouts(horizon, termination_function=f"{__name__}:never")
    assert len(found["reward"]) == COUNT * horizon
    assert (found["discount"] == np.float32(0.99)).all()
    following, seen = found["next_observation"][:-COUNT], found["observation"][COUNT:]
    np.testing.assert_array_equal(following, seen)
    assert not found["observation"][:COUNT].any() and found["next_observation"].any()


def test_rollouts_stop_where_the_episode_terminates() -> None:
    found = rollouts(4, termination_function=f"{__name__}:always")
    assert len(found["reward"]) == COUNT
    assert not found["discount"].any()


def test_states_unlike_any_that_were_seen_are_not_kept() -> None:
    assert len(rollouts(4, 20.0, termination_function=f"{__name__}:never")["reward"]) < COUNT * 4


def test_a_known_reward_is_given_the_environments_action_and_scaled() -> None:
    found = rollouts(1, reward_function=f"{__name__}:paid", reward_scale=2.0)
    np.testing.assert_allclose(found["reward"], 2 * (3 + found["action"][:, 0]), rtol=1e-6)


def test_acting_alone_builds_no_model() -> None:
    agent = make_agent(continuous_spec(), id="MBPO-v0", **SMALL)
    assert not hasattr(agent, "experience")
    assert agent.action(np.zeros((2, 3), np.float32), Streams(0, range(2)))[0].shape == (2, 2)
