"""What an agent exports is what it does, or it exports nothing."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from support.learning import continuous_spec, discrete_spec, make_agent

from exarl.agents.a2c import A2C
from exarl.agents.dqn import DQN, DeepQ, DQNConfig
from exarl.agents.sac import SAC, SoftActorCritic
from exarl.agents.sac import make as make_sac
from exarl.envs.masks import KEY
from exarl.envs.spaces import adapt
from exarl.export import evaluate
from exarl.networks.mlp import MLP, MLPConfig
from exarl.networks.parted import network_of
from exarl.types import ArraySpec

DISCRETE, CONTINUOUS = discrete_spec((3,), 4), continuous_spec((3,), 2)


class Least(DeepQ):
    """Takes the action that is rated lowest."""

    def act(
        self, xp: Any, hyper: Any, acting: Any, observations: Any, rng: Any, memory: Any
    ) -> Any:
        return acting.forward("q", observations, memory)[0].argmin(-1), {}, {}


class Said(Least):
    """Says nothing about another action."""

    greedy = slice(0, None)


class Bolder(DeepQ):
    """Explores otherwise, and is greedy as it was."""

    greedy = DeepQ.greedy

    def act(
        self, xp: Any, hyper: Any, acting: Any, observations: Any, rng: Any, memory: Any
    ) -> Any:
        found = super().act(xp, hyper, acting, observations, None, memory)
        return found if rng is None else (0 * found[0], *found[1:])


class Unsaid(SoftActorCritic):
    """Passes through tanh, and says that it does not."""

    squashed = False


class Restless(DQN):
    """An agent that changes actions itself."""

    def action(self, observations: Any, rng: Any = None, memory: Any = None) -> Any:
        actions, recorded = super().action(observations, rng, memory)
        return (actions + 1) % 4, recorded


class Known(Restless):
    """One that says what it exports."""

    def exported(self) -> Any:
        return super().exported()


def dqn_of(algorithm: type[DeepQ], agent: type[DQN] = DQN, **parameters: Any) -> Any:
    def make(spec: Any, config: DQNConfig, network: Any) -> DeepQ:
        return algorithm(spec, config, {"q": network(spec.n_actions + config.dueling)})

    kind = type("Own", (agent,), {"make_algorithm": staticmethod(make)})
    network: Any = partial(MLP, MLPConfig((8,)), DISCRETE.observation)
    return kind(DISCRETE, DQNConfig(**parameters), network, 0)


def sac_of(algorithm: type[SoftActorCritic]) -> Any:
    def make(spec: Any, config: Any, network: Any) -> SoftActorCritic:
        plain = make_sac(spec, config, network)
        return algorithm(spec, config, plain.networks)

    kind = type("Own", (SAC,), {"make_algorithm": staticmethod(make)})
    network: Any = partial(MLP, MLPConfig((8,)), CONTINUOUS.observation)
    return kind(CONTINUOUS, SAC.Config(), network, 0)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("algorithm", [DeepQ, Bolder])
def test_the_greedy_policy_is_exported_whatever_explores(algorithm: Any, dueling: bool) -> None:
    agent = dqn_of(algorithm, dueling=dueling)
    seen = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(agent.exported(), seen)[:, 0], agent.action(seen)[0])


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (partial(dqn_of, Least), "Least changes act.*greedy and squashed"),
        (partial(dqn_of, Said), "act.. of Said does not do what"),
        (partial(sac_of, Unsaid), "act.. of Unsaid does not do what"),
        (partial(dqn_of, DeepQ, Restless), "Restless changes action.*exported.. of its own"),
    ],
)
def test_a_subclass_that_acts_otherwise_is_refused_in_one_line(agent: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        agent().exported()
    assert "\n" not in str(refused.value)


def test_an_agent_may_say_itself_what_it_exports() -> None:
    assert dqn_of(DeepQ, Known).exported().outputs == 1


@pytest.mark.parametrize("id", ["DQN-v0", "A2C-v0", "PPO-v0", "SAC-v0", "TD3-v0", "DDPG-v0"])
@pytest.mark.parametrize("units", [0, 5])
def test_every_agent_can_be_exported(id: str, units: int) -> None:
    if units and id not in ("DQN-v0", "A2C-v0", "PPO-v0"):
        pytest.skip("learns without memory")
    agent = make_agent(DISCRETE if id == "DQN-v0" else CONTINUOUS, id=id, units=units)
    agent.set_weights(3 * agent.get_weights())
    assert agent.exported().recurrent is bool(units)


def test_actions_of_a_box_of_integers_are_exported_rounded() -> None:
    spec = dataclasses.replace(
        CONTINUOUS,
        action=ArraySpec((2,), "float32"),
        action_low=(0.0, 0.0),
        action_high=(7.0, 100.0),
        whole_actions=True,
    )
    agent = make_agent(spec, id="TD3-v0")
    seen = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    expected = np.rint((agent.action(seen)[0] + 1) / 2 * np.float32([7, 100]))
    np.testing.assert_array_equal(evaluate(agent.exported(), seen), expected)


BOXES = spaces.Box(-1, 1, (3,))
MASKED = {
    "masked": (spaces.Discrete(4), 4),
    "masked factors": (spaces.MultiDiscrete([3, 2, 4]), 9),
    "factors": (spaces.MultiBinary(12), 0),
}


@pytest.mark.parametrize("case", MASKED)
@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize(
    ("kind", "config"),
    [(DQN, {"dueling": True}), (A2C, {}), (A2C, {"normalize_observations": True})],
)
def test_factors_and_masks_are_exported(
    case: str, frames: int, kind: type[Any], config: dict[str, Any]
) -> None:
    space, entries = MASKED[case]
    mask = {KEY: spaces.MultiBinary(entries)} if entries else {}
    seen = spaces.Dict([("before", BOXES), *mask.items(), ("x", BOXES)])
    adapter = adapt(
        "E",
        seen,
        space,
        action_kind="discrete",
        nactions=5,
        max_episode_steps=None,
        frames=frames,
        factors=True,
        masks=True,
    )
    network: Any = partial(network_of(adapter.spec, MLP), MLPConfig((8,)), adapter.spec.observation)
    agent = kind(adapter.spec, kind.Config(**config), network, 0)
    rng, shape = np.random.default_rng(1), adapter.spec.observation.shape
    rows = rng.normal(size=(200, *shape)).astype(np.float32)
    if entries:
        rows[..., 3 : 3 + entries] = rng.integers(0, 2, (200, *shape[:-1], entries))
    policy, expected = agent.exported(), agent.action(rows)[0]
    found = evaluate(policy, rows.reshape(200, -1))
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    assert len(np.unique(found, axis=0)) > 1
