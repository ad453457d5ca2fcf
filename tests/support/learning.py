"""Agents, blocks and rollouts for tests, built from the smallest parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np

from exarl import registry
from exarl.acting.rollout import Rollout
from exarl.agents.base import ExaAgent
from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.envs.episode import Episode
from exarl.envs.spaces import SpaceAdapter, adapt
from exarl.learning.exploration import Streams
from exarl.networks.lstm import LSTM, LSTMConfig
from exarl.networks.mlp import MLP, MLPConfig
from exarl.types import BLOCK_NUMBERS, Arrays, ArraySpec, Block, EnvSpec

MakeEnv = Callable[[int], "gymnasium.Env[Any, Any]"]
"""An environment by its number."""


def discrete_spec(shape: tuple[int, ...] = (3,), n_actions: int = 2) -> EnvSpec:
    return EnvSpec("Toy-v0", ArraySpec(shape, "float32"), ArraySpec((), "int64"), n_actions)


def continuous_spec(shape: tuple[int, ...] = (3,), actions: int = 2) -> EnvSpec:
    bounds = (-1.0,) * actions, (1.0,) * actions
    action = ArraySpec((actions,), "float32")
    return EnvSpec("Toy-v0", ArraySpec(shape, "float32"), action, None, *bounds)


NORMALISING = ("normalize_observations", "normalize_rewards")


def make_agent(
    spec: EnvSpec,
    *,
    id: str = "DQN-v0",
    seed: int = 0,
    hidden: tuple[int, ...] = (8,),
    units: int = 0,
    layer_norm: bool = False,
    dropout: float = 0.0,
    learner: bool = False,
    **parameters: Any,
) -> Any:
    """An agent of a small network, an LSTM if it has ``units``; ``Any``, so that tests may look
    inside. Nothing is normalised unless ``parameters`` say so, also where that is the default; but
    batches are for the agents that need it."""
    agent_class = registry.agents.load(id)
    own = agent_class.defaults.get("models", {}).get("MLP", {})
    plain = {name: False for name in NORMALISING if hasattr(agent_class.Config, name)}
    kind = MLPConfig(
        hidden, layer_norm=layer_norm, dropout=dropout, batch_norm=own.get("batch_norm", "none")
    )
    network: Any = partial(MLP, kind, spec.observation)
    if units:
        network = partial(LSTM, LSTMConfig(hidden, units), spec.observation)
    agent = agent_class(spec, agent_class.Config(**{**plain, **parameters}), network, seed)
    if learner:
        agent.set_learner()
    return agent


def random_block(
    spec: EnvSpec, seed: int, steps: int = 8, width: int = 2, p_end: float = 0.2, scale: float = 1.0
) -> Block:
    """Random numbers in the form of a block, with endings of both kinds."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((steps, width)) < p_end / 2
    truncated = (rng.random((steps, width)) < p_end / 2) & ~terminated
    ends = int((terminated | truncated).sum())

    def observations(*leading: int) -> np.ndarray:
        shape = (*leading, *spec.observation.shape)
        return rng.normal(size=shape).astype(spec.observation.dtype)

    def actions() -> np.ndarray:
        if spec.n_actions is not None:
            return rng.integers(spec.n_actions, size=(steps, width))
        return rng.uniform(-1, 1, (steps, width, *spec.action.shape)).astype(np.float32)

    return Block(
        observations(steps + 1, width),
        actions(),
        (scale * rng.normal(size=(steps, width))).astype(np.float32),
        terminated,
        truncated,
        observations(ends),
        rng.normal(size=ends),
        rng.integers(1, 100, size=ends),
    )


def through_storage(
    arrays: Arrays, numbers: dict[str, Any] | None = None
) -> tuple[Arrays, dict[str, Any]]:
    """What a checkpoint gives back: arrays through safetensors, numbers through JSON."""
    return decode_arrays(encode_arrays(arrays)), json.loads(json.dumps(numbers or {}))


def adapter_of(
    env: gymnasium.Env[Any, Any], kind: str = "discrete", limit: int | None = None, bins: int = 5
) -> SpaceAdapter:
    return adapt(
        "Toy-v0",
        env.observation_space,
        env.action_space,
        action_kind=kind,
        nactions=bins,
        max_episode_steps=limit,
    )


def make_episode(
    env: gymnasium.Env[Any, Any],
    limit: int | None = None,
    seed: int = 0,
    env_id: int = 0,
    kind: str = "discrete",
) -> Episode:
    return Episode(env, adapter_of(env, kind, limit), limit, seed, env_id)


def make_rollout(
    agent: ExaAgent,
    make_env: MakeEnv,
    env_ids: Sequence[int],
    *,
    steps: int,
    limit: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Rollout:
    episodes = [make_episode(make_env(i), limit, seed, i, agent.action_kind) for i in env_ids]
    return Rollout(agent, episodes, Streams(seed, env_ids), steps, **options)


def collect(rollout: Rollout, version: int = 0) -> Block:
    """The rollout's next block, without an interruption."""
    block = rollout.collect(version)
    assert block is not None
    return block


def learn(
    make_env: MakeEnv,
    *,
    id: str = "DQN-v0",
    blocks: int,
    steps: int = 16,
    width: int = 4,
    limit: int | None = None,
    seed: int = 0,
    **parameters: Any,
) -> tuple[Any, list[Block]]:
    """A learner trained as the sync workflow does it, and the blocks it saw."""
    spec = adapter_of(make_env(0), registry.agents.load(id).action_kind, limit).spec
    actor = make_agent(spec, id=id, seed=seed, **parameters)
    learner = make_agent(spec, id=id, seed=seed, learner=True, **parameters)
    rollout = make_rollout(actor, make_env, range(width), steps=steps, limit=limit, seed=seed)
    seen = []
    for version in range(blocks):
        actor.set_weights(learner.get_weights())
        seen.append(collect(rollout, version))
        learner.train(seen[-1])
    learner.set_weights(learner.get_weights())
    rollout.close()
    return learner, seen


def assert_same_arrays(one: Arrays, other: Arrays) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype, name
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def assert_same_block(one: Block, other: Block) -> None:
    """All but the time spent."""
    apart = ("seconds", "recorded", *BLOCK_NUMBERS, "lead", "episode_info")
    names = [n for n in vars(one) if n not in apart]
    assert_same_arrays({n: getattr(one, n) for n in names}, {n: getattr(other, n) for n in names})
    assert_same_arrays(dict(one.recorded), dict(other.recorded))
    for name in BLOCK_NUMBERS:
        assert getattr(one, name) == getattr(other, name), name
    told = [
        [{n: list(sums) for n, sums in each.items()} for each in b.episode_info]
        for b in (one, other)
    ]
    assert told[0] == told[1]
    leads = [{} if b.lead is None else b.lead._asdict() for b in (one, other)]
    assert_same_arrays(*leads)


class Scripted(ExaAgent):
    """Tosses a coin for every action, records the toss and what it saw, and learns nothing."""

    recorded = MappingProxyType(
        {"toss": ArraySpec((), "float64"), "seen": ArraySpec((3,), "float32")}
    )
    metrics = ("loss",)

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__(spec, None, lambda _: None, 0)  # type: ignore[arg-type,return-value]
        self.trained: list[Block] = []

    def action(self, observations: np.ndarray, rng: Streams | None = None) -> tuple[Any, Arrays]:
        assert rng is not None
        toss = rng.uniform(1)[:, 0]
        return (toss > 0.5).astype(np.int64), {"toss": toss, "seen": observations}

    def set_weights(self, weights: np.ndarray) -> None:
        pass

    def set_learner(self) -> None:
        pass

    def train(self, block: Block) -> dict[str, float]:
        self.trained.append(block)
        return {"loss": float(len(self.trained)), "updates": 3}

    def get_weights(self) -> np.ndarray:
        return np.float32([len(self.trained)])
