"""Nothing is compiled after the first block that updates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.learning import continuous_spec, discrete_spec, make_agent, random_block

import exarl
from exarl import registry
from exarl.networks.cnn import CNN, CNNConfig
from exarl.training.loop import LearningLoop
from exarl.types import ArraySpec, EnvSpec

DISCRETE, CONTINUOUS = discrete_spec((5,), 3), continuous_spec((5,))
IMAGES = EnvSpec("Toy-v0", ArraySpec((12, 12, 1), "uint8"), ArraySpec((), "int64"), 3)
REPLAY = {"batch_size": 8, "learning_starts": 17, "updates_per_step": 0.25}
NORMAL = {"normalize_observations": True, "normalize_rewards": True}

CASES: dict[str, tuple[str, EnvSpec, dict[str, Any]]] = {
    "DQN": ("DQN-v0", DISCRETE, {**REPLAY, **NORMAL}),
    "DQN LSTM": ("DQN-v0", DISCRETE, {**REPLAY, "units": 4, "priority_scale": 0.6}),
    "DQN CNN": ("DQN-v0", IMAGES, REPLAY),
    "DQN on device": ("DQN-v0", DISCRETE, {**REPLAY, "replay_device": "device"}),
    "DDPG": ("DDPG-v0", CONTINUOUS, REPLAY),
    "TD3 on device": (
        "TD3-v0",
        CONTINUOUS,
        {**REPLAY, "replay_device": "device", "priority_scale": 0.6},
    ),
    "SAC": ("SAC-v0", CONTINUOUS, REPLAY),
    "A2C": ("A2C-v0", DISCRETE, NORMAL),
    "A2C LSTM": ("A2C-v0", DISCRETE, {"units": 4}),
    "PPO": ("PPO-v0", DISCRETE, {"epochs": 2, "target_kl": 0.01}),
}


@pytest.fixture(scope="module")
def compiled() -> Iterator[list[str]]:
    """The compilations so far; what the cache on disk gives counts too."""
    seen: list[str] = []

    def note(event: str, seconds: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield seen


def make(name: str) -> Any:
    id, spec, parameters = CASES[name]
    if spec is not IMAGES:
        return make_agent(spec, id=id, learner=True, **parameters)
    agent_class = registry.agents.load(id)
    layers = CNNConfig(filters=(4,), kernels=(4,), strides=(2,), hidden=(16,))
    network: Any = partial(CNN, layers, spec.observation)
    agent = agent_class(spec, agent_class.Config(**parameters), network, 0)
    agent.set_learner()
    return agent


def block_for(agent: Any, seed: int) -> Any:
    """Blocks differ in how many episodes end in them."""
    block = random_block(agent.spec, seed, p_end=0.1 * seed)
    for name, spec in agent.recorded.items():
        block.recorded[name] = spec.zeros(*block.rewards.shape)
    return block


SLOW = ("DQN LSTM", "DQN CNN", "DDPG", "A2C LSTM")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CASES]
)
def test_an_agent_compiles_only_at_its_first_updates(name: str, compiled: list[str]) -> None:
    agent = make(name)
    until = []
    for seed in range(5):
        metrics = agent.train(block_for(agent, seed))
        assert (int(metrics["updates"]) > 0) is (
            seed > 0 or "learning_starts" not in CASES[name][2]
        )
        assert all(np.isfinite(float(value)) for value in metrics.values())
        agent.get_weights()
        agent.state()
        until.append(len(compiled))
    assert until[1] > 0, "the listener hears nothing"
    assert until[1:] == [until[1]] * 4


@pytest.mark.parametrize("replay", ["host", pytest.param("device", marks=pytest.mark.slow)])
def test_a_run_compiles_only_at_its_first_updates(
    replay: str, tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With evaluations and checkpoints, and after a resume likewise."""
    counts: list[tuple[int, int]] = []
    train = LearningLoop.train

    def watched(loop: LearningLoop, *arguments: Any) -> None:
        train(loop, *arguments)
        loop.weights()
        counts.append((loop.counters.updates, len(compiled)))

    monkeypatch.setattr(LearningLoop, "train", watched)
    run = tmp_path / "run"
    exarl.train(
        env="ExaCartPole-v1",
        total_steps=320,
        learning_starts=64,
        hidden=[8],
        eval_interval=64,
        eval_episodes=1,
        checkpoint_interval=0,
        replay_device=replay,
        run_dir=str(run),
        progress=False,
    )
    _assert_settled(counts)
    assert (run / "evaluations.csv").read_text().count("\n") > 2
    counts.clear()
    exarl.ExaLearner.resume(run, argv=["--total_steps", "480"], progress=False).run()
    _assert_settled(counts)


def _assert_settled(counts: list[tuple[int, int]]) -> None:
    updating = [seen for updates, seen in counts if updates]
    assert len(updating) > 3
    assert updating == [updating[0]] * len(updating)
