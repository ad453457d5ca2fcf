"""Prior data of a run: datasets as the agent's own episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exarl import registry
from exarl.agents.offpolicy import OffPolicyConfig
from exarl.agents.prior import Prior, episode_block
from exarl.config import Configuration
from exarl.data import Dataset, RecordedEpisode, check, checksum, read
from exarl.data.episodes import Tree
from exarl.envs.base import Space
from exarl.envs.layout import Flattened, VectorLayout
from exarl.envs.space_json import space_from_json
from exarl.envs.structured import JoinedActions
from exarl.envs.taken import encoder
from exarl.errors import ConfigError
from exarl.run.recording import own_actions
from exarl.types import Block, EnvSpec


def check_prior(configuration: Configuration) -> None:
    """ConfigError where the agent or the workflow cannot learn from prior data, or there is none."""
    learner = configuration.learner
    if not learner.prior_data:
        return
    if not issubclass(registry.agents.load(learner.agent).Config, OffPolicyConfig):
        raise ConfigError(
            f"agent '{learner.agent}' has no replay: prior_data needs one that has, such as SAC-v0 or"
            " DQN-v0"
        )
    if learner.workflow == "fused":
        raise ConfigError("prior_data cannot be used with workflow 'fused'; use another one")
    for path in learner.prior_data:
        read(path)


def load_prior(configuration: Configuration, spec: EnvSpec) -> Prior | None:
    """The prior data in the form that the agent learns from; ConfigError, in one line, where they do
    not fit the environment."""
    paths = configuration.learner.prior_data
    if not paths:
        return None
    adapter, acted = own_actions(configuration, spec)
    blocks: list[Block] = []
    sums: dict[str, str] = {}
    for path in paths:
        dataset = read(path)
        check(dataset, spec)
        seen, chosen = seer(dataset, spec), encoder(adapter, as_stored(dataset, acted))
        for number, episode in enumerate(dataset):
            try:
                blocks.append(as_block(episode, spec, seen, chosen))
            except (TypeError, ValueError, LookupError) as error:
                raise ConfigError(
                    f"{path}, episode {number} does not fit {spec.env_id}: {error}"
                ) from error
        sums[path] = checksum(dataset)
    return Prior(tuple(blocks), configuration.learner.prior_part, sums)


def seer(dataset: Dataset, spec: EnvSpec) -> Callable[[Tree], np.ndarray]:
    """How observations of a dataset become those that the agent sees [N, ...]."""
    form = dataset.observation or {}
    if form.get("type") in (None, "Box"):
        return lambda tree: np.asarray(tree).reshape(-1, *spec.observation.shape)
    try:
        encode = VectorLayout.of(space_from_json(form)).encoder()
    except ValueError as error:
        raise ConfigError(f"{dataset.path}: {error}") from error
    shape = spec.observation.shape

    def seen(tree: Tree) -> np.ndarray:
        rows = [np.asarray(encode(row(tree, t))) for t in range(rows_of(tree))]
        if rows[0].shape != shape:
            raise ValueError(f"observations have shape {rows[0].shape}, not {shape}")
        return np.stack(rows)

    return seen


def as_stored(dataset: Dataset, acted: Space) -> Space:
    """The action space, or how its values are stored: those of several parts as one vector."""
    joined = JoinedActions.of(acted)
    if joined is None or (dataset.action or {"type": "Box"}).get("type") in ("Dict", "Tuple"):
        return acted
    return Flattened(joined.box, acted)


def row(tree: Tree, t: int) -> Any:
    """One value of a space with parts."""
    if isinstance(tree, dict):
        return {name: row(part, t) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(row(part, t) for part in tree)
    return tree[t]


def rows_of(tree: Tree) -> int:
    """How many values there are."""
    if isinstance(tree, np.ndarray):
        return len(tree)
    return rows_of(next(iter(tree.values() if isinstance(tree, dict) else tree)))


def as_block(
    episode: RecordedEpisode,
    spec: EnvSpec,
    seen: Callable[[Tree], np.ndarray],
    chosen: Callable[[Any], Any],
) -> Block:
    """An episode as the agent would have lived it: actions of continuous spaces in [-1, 1]."""
    observations = seen(episode.observations).astype(spec.observation.dtype)
    actions = np.stack([chosen(row(episode.actions, t)) for t in range(episode.steps)])
    if not spec.discrete and np.isfinite([*spec.action_low, *spec.action_high]).all():
        actions = actions.clip(-1, 1)
    actions = actions.reshape(-1, *spec.action.shape).astype(spec.action.dtype)
    return episode_block(
        observations, actions, episode.rewards, episode.terminations, episode.truncations
    )
