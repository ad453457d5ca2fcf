"""Networks that learn in bfloat16: the same losses to its accuracy, and still learning."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from support.envs import Aim, Identity
from support.learning import continuous_spec, discrete_spec, learn, make_agent, random_block

from exarl import registry
from exarl.networks.cnn import CNN, CNNConfig
from exarl.networks.precision import Reduced
from exarl.types import ArraySpec, EnvSpec

DISCRETE, CONTINUOUS = discrete_spec((5,), 3), continuous_spec((5,))
REPLAY = {"batch_size": 32, "learning_starts": 0, "updates_per_step": 1 / 16}
IMAGES = EnvSpec("Toy-v0", ArraySpec((12, 12, 1), "uint8"), ArraySpec((), "int64"), 3)


def imaging(precision: str) -> Any:
    """A DQN that sees images."""
    agent_class = registry.agents.load("DQN-v0")
    layers = CNNConfig(filters=(4,), kernels=(4,), strides=(2,), hidden=(16,))
    network: Any = partial(CNN, layers, IMAGES.observation)
    agent = agent_class(IMAGES, agent_class.Config(precision=precision, **REPLAY), network, 0)
    agent.set_learner()
    return agent


MAKERS: dict[str, Any] = {
    "DQN": partial(make_agent, DISCRETE, learner=True, hidden=(32,), **REPLAY),
    "DQN CNN": imaging,
    "TD3": partial(make_agent, CONTINUOUS, id="TD3-v0", learner=True, hidden=(32,), **REPLAY),
    "A2C LSTM": partial(make_agent, DISCRETE, id="A2C-v0", learner=True, units=16),
}


def block_for(agent: Any, seed: int) -> Any:
    block = random_block(agent.spec, seed, steps=8, width=4)
    for name, spec in agent.recorded.items():
        block.recorded[name] = spec.zeros(*block.rewards.shape)
        if name == "log_prob":
            block.recorded[name] -= np.float32(np.log(3))
    return block


@pytest.mark.parametrize(
    "name", ["DQN", *(pytest.param(n, marks=pytest.mark.slow) for n in MAKERS if n != "DQN")]
)
def test_losses_agree_to_the_accuracy_of_bfloat16(name: str) -> None:
    """Eight bits are 0.4 percent a number. What is kept and what acts is float32."""
    plain, reduced = (MAKERS[name](precision=p) for p in ("float32", "bfloat16"))
    for seed in range(2):
        block = block_for(plain, seed)
        one, other = plain.train(block), reduced.train(block)
        for term in (term for term in one if term.endswith("loss")):
            scale = max(abs(float(one[term])), 0.1)
            assert float(other[term]) == pytest.approx(float(one[term]), abs=0.05 * scale), term
            assert float(other[term]) != float(one[term]), "nothing was rounded"
    for leaf in jax.tree.leaves(reduced.train_state):
        assert leaf.dtype in (np.float32, np.int32, np.bool_)
    assert reduced.get_weights().dtype == np.float32
    seen = block_for(plain, 2).observations[0]
    memory = {n: spec.zeros(len(seen)) for n, spec in plain.memory.items()}
    twin = {n: array.copy() for n, array in memory.items()}
    reduced.set_weights(plain.get_weights())
    plain.set_weights(plain.get_weights())
    np.testing.assert_array_equal(
        reduced.action(seen, None, memory)[0], plain.action(seen, None, twin)[0]
    )


def test_products_are_made_in_bfloat16() -> None:
    """Every matrix product of the networks, forward and backward; none is widened on its way."""
    agent = MAKERS["DQN"](precision="bfloat16")
    batch = {
        n: a[:32] for n, a in agent.algorithm.rows(np, agent.hyper, block_for(agent, 0)).items()
    }
    from exarl.agents.engine import Engine

    grads = partial(Engine(agent.algorithm).grads, agent.hyper)
    made = str(jax.make_jaxpr(grads)(agent.train_state, batch))
    products = [line for line in made.splitlines() if "dot_general" in line]
    assert len(products) >= 6
    assert all(":bf16[" in line.split("=")[0] for line in products), products


class Plain:
    """A user's network, which knows nothing of extra inputs or memory."""

    def apply(self, xp: Any, params: Any, observations: Any) -> Any:
        return xp.sin(observations @ params["w"])


def test_a_network_of_ones_own_is_rounded_at_its_door() -> None:
    rng = np.random.default_rng(0)
    params, seen = {"w": rng.normal(size=(3, 2)).astype("f4")}, rng.normal(size=(5, 3)).astype("f4")
    exact, reduced = Plain().apply(np, params, seen), Reduced(Plain())
    np.testing.assert_array_equal(reduced.apply(np, params, seen), exact)
    rounded = np.asarray(reduced.apply(jax.numpy, params, jax.numpy.asarray(seen)))
    assert rounded.dtype == np.float32
    assert 0 < np.abs(rounded - exact).max() < 0.05


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("id", ["DQN-v0", pytest.param("TD3-v0", marks=pytest.mark.slow)])
def test_it_still_learns(id: str, seed: int) -> None:
    """The toys of the agents' contract, with the settings they have there."""
    replay = {"gamma": 0.9, "batch_size": 32, "learning_rate": 5e-3, "tau": 0.05}
    settings: dict[str, dict[str, Any]] = {
        "DQN-v0": {**replay, "learning_starts": 64, "epsilon_steps": 600, "blocks": 20},
        "TD3-v0": {
            **replay,
            "learning_starts": 256,
            "noise": 0.3,
            "hidden": (32,),
            "policy_learning_rate": 1e-3,
            "blocks": 20,
        },
    }
    own = {**settings[id], "steps": 20, "seed": seed, "precision": "bfloat16"}
    if id == "TD3-v0":
        agent, _ = learn(lambda _: Aim(), id=id, **own)
        aims = np.linspace(-0.7, 0.7, 15, dtype=np.float32)[:, None]
        assert np.abs(agent.action(aims)[0] - aims).mean() < 0.2  # always 0: 0.37
    else:
        agent, _ = learn(lambda _: Identity(), id=id, **own)
        assert agent.action(np.eye(4, dtype=np.float32))[0].tolist() == [0, 1, 2, 3]
