"""Learning an environment from recorded episodes, and how far its predictions can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exarl.data.episodes import RecordedEpisode
from exarl.envs.surrogate import LearnedEnv, dynamics_for, first_action, spaces_of
from exarl.errors import ConfigError
from exarl.networks.dynamics import Dynamics, Scales, chosen
from exarl.types import Array, Arrays

PIECE = 200
"""Updates between two measurements on rows that are held out."""


@dataclass(frozen=True)
class Fitting:
    """How a surrogate is learned."""

    members: int = 7
    elites: int = 5
    hidden: tuple[int, ...] = (200, 200)
    updates: int = 3000
    batch_size: int = 256
    learning_rate: float = 1e-3
    seed: int = 1


class HorizonErrors(NamedTuple):
    """Errors of predictions over several steps, of episodes that were not learned from."""

    horizons: np.ndarray  # [H] steps
    model: np.ndarray  # [H] root mean square, in deviations of what was seen
    persistence: np.ndarray  # [H] of the prediction that nothing changes
    episodes: int

    @property
    def trusted(self) -> int:
        """The steps up to which the model is always better than persistence."""
        worse = np.flatnonzero(self.model >= self.persistence)
        return (
            int(self.horizons[worse[0] - 1])
            if len(worse) and worse[0]
            else (0 if len(worse) else int(self.horizons[-1]))
        )


def learn(
    episodes: Sequence[RecordedEpisode],
    observation: Any,
    action: Any,
    env_id: str,
    how: Fitting,
    horizon: int,
) -> tuple[LearnedEnv, HorizonErrors]:
    """A surrogate of nine tenths of the episodes, and its errors on the rest. ``observation`` and
    ``action`` are spaces as plain data. ConfigError where these episodes are too few or of other kinds.
    """
    from exarl.agents import compiled
    from exarl.agents.world_model import WorldModel

    jax = compiled.jax
    if len(episodes) < 2:
        raise ConfigError("a surrogate needs at least 2 episodes, one of which it is tested on")
    try:
        seen, acted = spaces_of(observation, action)
        dynamics = dynamics_for(seen, acted, how.members, how.hidden)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(str(error)) from error
    rng = np.random.default_rng(how.seed)
    order = rng.permutation(len(episodes)).tolist()
    tested = max(1, len(episodes) // 10)
    held, used = ([episodes[i] for i in part] for part in (order[:tested], order[tested:]))
    rows = transitions(used, first_action(acted))
    model = WorldModel(dynamics, how.elites, how.batch_size, how.learning_rate)
    placed, count = jax.tree.map(jax.numpy.asarray, rows), len(rows["reward"])
    state = compiled.to_device(model.seen(model.init(rng), rows))
    keys = [jax.random.key(how.seed + number) for number in range(2)]
    train = jax.jit(
        lambda state: model.trained(state, placed, count, keys[0], PIECE)[0], donate_argnums=0
    )
    for _ in range(-(-how.updates // PIECE)):
        state = train(state)
    found = jax.jit(lambda state: model.assess(state, placed, count, keys[1]))(state)
    params: Arrays = {n: np.asarray(a) for n, a in chosen(state.params, found.elites).items()}
    scaling = Scales(*map(np.asarray, model.scaling(state)))
    flat = np.concatenate([_flat(e.observations) for e in used])
    made = LearnedEnv(
        Dynamics(dynamics.observation, dynamics.action, how.elites, how.hidden, dynamics.n_actions),
        params,
        scaling,
        np.stack([_flat(e.observations)[0] for e in used]),
        np.stack([flat.min(0), flat.max(0)]),
        seen,
        acted,
        limit_of(episodes),
        env_id,
        count,
    )
    return made, errors_by_horizon(made, held, horizon)


def transitions(episodes: Sequence[RecordedEpisode], start: int = 0) -> Arrays:
    """The steps of episodes as rows; Discrete actions begin with ``start``."""
    seen = [_flat(e.observations) for e in episodes]
    ended = np.concatenate([np.asarray(e.terminations, bool) for e in episodes])
    actions = np.concatenate([np.asarray(e.actions) for e in episodes])
    return {
        "observation": np.concatenate([s[:-1] for s in seen]),
        "action": actions - start if start else actions,
        "reward": np.concatenate([np.asarray(e.rewards, np.float32) for e in episodes]),
        "discount": np.where(ended, 0, 1).astype(np.float32),
        "next_observation": np.concatenate([s[1:] for s in seen]),
    }


def limit_of(episodes: Sequence[RecordedEpisode]) -> int | None:
    """The longest episode, if any was cut off by a limit."""
    cut = [len(e.rewards) for e in episodes if not e.terminations[-1]]
    return max(cut) if cut else None


def errors_by_horizon(
    made: LearnedEnv, held: Sequence[RecordedEpisode], horizon: int
) -> HorizonErrors:
    """Errors of the mean prediction with the actions that were recorded, from every state of episodes
    that has this many steps after it; the horizon is not longer than the longest of them."""
    longest = max(len(e.rewards) for e in held)
    horizon, dynamics = min(horizon, longest), made.dynamics
    start = first_action(made.action)
    std = made.scaling.in_std[: dynamics.observation]
    sums = np.zeros((3, horizon))
    for episode in held:
        seen, steps = _flat(episode.observations), len(episode.rewards)
        actions = np.asarray(episode.actions) - start if start else np.asarray(episode.actions)
        now = first = seen[:-1]
        for ahead in range(min(horizon, steps)):
            count = steps - ahead  # starts that have a step so far ahead
            now = _mean_step(made, now[:count], actions[ahead:])
            true = seen[ahead + 1 :]
            misses = [((guess - true) / std) ** 2 for guess in (now, first[:count])]
            sums[:, ahead] += [*(miss.mean(1).sum() for miss in misses), count]
    model, persistence = np.sqrt(sums[:2] / sums[2])
    return HorizonErrors(np.arange(1, horizon + 1), model, persistence, len(held))


def _mean_step(made: LearnedEnv, observations: Array, actions: Array) -> np.ndarray:
    """The mean of what all members predict, within the range of the surrogate."""
    inputs = made.dynamics.encoded(np, observations, actions)
    mean = made.dynamics.apply(np, made.params, made.scaling, inputs).mean.mean(0)
    following = observations + (made.scaling.out_mean + made.scaling.out_std * mean)[:, :-1]
    low, high = made.range
    return np.asarray(np.clip(following, low - 0.1 * (high - low), high + 0.1 * (high - low)))


def _flat(observations: Any) -> np.ndarray:
    """[N, observation] of float32; ConfigError for observations of several parts."""
    if not isinstance(observations, np.ndarray):
        raise ConfigError("a surrogate is learned of observations that are one array, not several")
    return observations.reshape(len(observations), -1).astype(np.float32)
