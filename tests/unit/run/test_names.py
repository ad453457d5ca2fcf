"""``exarl.register`` and ``exarl.make``, and the registration calls of the predecessor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import exarl
from exarl import registry
from exarl.errors import ConfigError
from exarl.types import ArraySpec, EnvSpec

SPEC = EnvSpec("CartPole-v1", ArraySpec((4,), "float32"), ArraySpec((), "int64"), 2)
KINDS = {
    "agent": registry.agents,
    "workflow": registry.workflows,
    "network": registry.networks,
}


class Tiny(gymnasium.Env[Any, Any]):
    """One step, one reward."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, size: int = 1) -> None:
        self.size = size


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody's configuration, and the registries as they were."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = [dict(known._entries) for known in KINDS.values()]
    environments = set(gymnasium.registry)
    yield
    for known, entries in zip(KINDS.values(), before, strict=True):
        known._entries = entries
    for id in set(gymnasium.registry) - environments:
        del gymnasium.registry[id]


# -- register ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_exarls_own_registers(kind: str) -> None:
    exarl.register(kind, "Mine-v0", "fractions:Fraction")
    assert KINDS[kind].load("Mine-v0").__name__ == "Fraction"
    with pytest.raises(ConfigError, match="registered already"):
        exarl.register(kind, "Mine-v0", dict)
    exarl.register(kind, "Mine-v0", dict, force=True)
    assert KINDS[kind].load("Mine-v0") is dict


def test_environments_register_with_gymnasium() -> None:
    exarl.register("env", "Tiny-v0", Tiny, max_episode_steps=7, kwargs={"size": 3})
    assert gymnasium.spec("Tiny-v0").max_episode_steps == 7
    made = gymnasium.make("Tiny-v0", disable_env_checker=True).unwrapped
    assert isinstance(made, Tiny)
    assert made.size == 3


def test_environments_registered_with_gymnasium_are_known() -> None:
    gymnasium.register("Tiny-v1", entry_point=Tiny)
    assert exarl.make("Tiny-v1", size=4).unwrapped.size == 4


@pytest.mark.parametrize("kind", ["agents", "environment", "", "models"])
def test_an_unknown_kind_is_named(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown kind '{kind}'"):
        exarl.register(kind, "Mine-v0", dict)


def test_the_predecessors_calls_work() -> None:
    exarl.agents.register(id="FooAgent-v0", entry_point="fractions:Fraction")
    exarl.workflows.register(id="FooWorkflow-v0", entry_point="fractions:Fraction")
    exarl.networks.register(id="FooNet", entry_point="fractions:Fraction")
    exarl.envs.register(id="FooEnv-v0", entry_point=Tiny)
    assert "FooAgent-v0" in registry.agents
    assert "FooWorkflow-v0" in registry.workflows
    assert "FooNet" in registry.networks
    assert "FooEnv-v0" in gymnasium.registry


# -- make --------------------------------------------------------------------------------------------


def test_an_agent_is_made_for_an_environment() -> None:
    agent = exarl.make("DQN-v0", SPEC, epsilon=0.25, hidden=[8])
    assert isinstance(agent, exarl.ExaAgent)
    assert agent.config.epsilon == 0.25
    actions, _ = agent.action(np.zeros((3, 4), np.float32))
    assert actions.shape == (3,)
    assert "jax" not in vars(sys.modules[type(agent).__module__])


def test_an_agent_without_its_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match="agent 'DQN-v0' needs the spec of its environment"):
        exarl.make("DQN-v0")


def test_a_workflow_is_made() -> None:
    workflow = exarl.make("sync")
    assert isinstance(workflow, exarl.ExaWorkflow)


def test_a_workflow_without_parameters_of_its_own_is_made() -> None:
    class Flow:
        def __init__(self, config: Any) -> None:
            self.config = config

    exarl.register("workflow", "plain", Flow)
    assert isinstance(exarl.make("plain"), Flow)


def test_an_environment_is_made() -> None:
    env = exarl.make("ExaCartPole-v1", intervals=10)
    env.reset(seed=1)
    assert "pi" in env.step(0)[4]
    env.close()


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("DQN", "nothing is registered as 'DQN'; did you mean 'DQN-v0'"),
        ("CartPole", "nothing is registered as 'CartPole'; did you mean 'CartPole-v1'"),
        ("snyc", "did you mean 'sync'"),
        ("", "nothing is registered as ''"),
    ],
)
def test_an_unknown_id_is_named(id: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        exarl.make(id)


@pytest.mark.parametrize(
    ("id", "parameters"),
    [("DQN-v0", {"epsilon": 2}), ("DQN-v0", {"epsilom": 0.5}), ("CartPole-v1", {"x": 1})],
)
def test_a_wrong_parameter_is_refused(id: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        exarl.make(id, SPEC, **parameters)


# -- the public names --------------------------------------------------------------------------------


def test_every_public_name_is_there() -> None:
    for name in [*exarl.__all__, "agents", "envs", "networks", "workflows", "__version__"]:
        assert getattr(exarl, name) is not None
        assert name in dir(exarl)


def test_the_public_names_of_the_design_are_there() -> None:
    names = {"ExaLearner", "ExaAgent", "ExaWorkflow", "ExaEnv", "make", "register", "train"}
    assert names <= set(exarl.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ExaNothing'"):
        _ = exarl.ExaNothing


@pytest.mark.parametrize(
    "script",
    [
        "import gymnasium; env = gymnasium.make('exarl.envs:ExaCartPole-v1', intervals=10)",
        "import exarl.envs, gymnasium; env = gymnasium.make('ExaCartPole-v1', intervals=10)",
    ],
)
def test_gymnasium_makes_exarls_environments(script: str) -> None:
    """Gymnasium 1 has no plug-in hook: an id is known once the module that has it is imported,
    which Gymnasium does itself for ``module:id``."""
    script += (
        "\nenv.reset(seed=1); print(sorted(env.step(0)[4])); env.close(); import sys"
        "\nassert 'jax' not in sys.modules and 'mpi4py.MPI' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pi" in done.stdout


def test_an_environment_of_a_module_not_yet_imported_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import gymnasium\nfrom gymnasium.envs.classic_control.cartpole import CartPoleEnv\n"
        "gymnasium.register('Theirs-v0', entry_point=CartPoleEnv, max_episode_steps=9)\n"
    )
    (tmp_path / "their_module.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    env = exarl.make("their_module:Theirs-v0", sutton_barto_reward=True)
    assert env.unwrapped.spec.id.endswith("Theirs-v0")
    schema, _ = exarl.envs.describe_env("their_module:Theirs-v0")
    assert "sutton_barto_reward" in schema
    assert exarl.envs.make_env("their_module:Theirs-v0", {})[1] == 9
    with pytest.raises(ConfigError, match="no_such_module"):
        exarl.envs.describe_env("no_such_module:Theirs-v0")
    del sys.modules["their_module"]
