"""What a mistake is answered with: the name that was meant, what fits, what to install."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

MODULE = """
import gymnasium, exarl
from gymnasium.envs.classic_control import CartPoleEnv
from exarl.agents.dqn import DQN

class Own(CartPoleEnv):
    pass

class OwnAgent(DQN):
    pass

gymnasium.register("Mine-v0", entry_point=Own)
gymnasium.register("Mine-v1", entry_point="{name}:Own")
exarl.register("agent", "MyAgent-v0", OwnAgent)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A user's module with two environments and an agent in it."""
    import gymnasium

    from exarl import registry

    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for id in ("Mine-v0", "Mine-v1"):
        gymnasium.registry.pop(id, None)
    registry.agents._entries.pop("MyAgent-v0", None)
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--agent", "ppo"], ["did you mean 'PPO-v0'?"]),
        (["--agent", "sac"], ["did you mean 'SAC-v0'?"]),
        (["--env", "cartpole-V1"], ["did you mean 'CartPole-v1'?"]),
        (["--lr", "1"], ["did you mean 'learning_rate'?"]),
        (["--total_timesteps", "1"], ["did you mean 'total_steps'?"]),
        (["--buffer_size", "1"], ["did you mean 'replay_capacity'?"]),
        (["--rate", "1"], ["did you mean 'learning_rate'?"]),
        (["--env", "MiniGrid-Empty-5x5-v0"], ["write minigrid:MiniGrid-Empty-5x5-v0"]),
        (["--env", "ALE/Pong-v5"], ["write ale_py:ALE/Pong-v5"]),
        (["--env", "Zzz-v3"], ["exarl list envs", "MODULE:ID"]),
        (
            ["--agent", "DDPG-v0", "--env", "CartPole-v1"],
            ["continuous actions", "Discrete(2)", "agents that fit: A2C-v0", "DQN-v0", "PPO-v0"],
        ),
    ],
)
def test_the_answer_names_what_was_meant(exarl: Any, words: list[str], parts: list[str]) -> None:
    exarl("train", *words).refused(*parts)


def test_an_agent_that_does_not_fit_is_not_suggested(exarl: Any) -> None:
    answer = exarl("train", "--agent", "DDPG-v0", "--env", "CartPole-v1")
    assert "TD3-v0" not in answer.err


def test_a_module_without_the_environment_tells_what_it_registers(exarl: Any, module: str) -> None:
    for _ in range(2):  # when it is imported, and when it has been
        answer = exarl("train", "--env", f"{module}:Missing-v0")
        answer.refused("unknown environment 'Missing-v0'", f"{module} registers Mine-v0, Mine-v1")
        answer = exarl("train", "--agent", f"{module}:Missing-v0")
        answer.refused("unknown agent 'Missing-v0'", f"{module} registers MyAgent-v0")
    exarl("train", "--env", "fractions:Missing-v0").refused("fractions registers no environment")


def test_settings_for_the_pair_are_named_when_they_are_used(exarl: Any) -> None:
    short = ["--total_steps", "40", "--hidden", "4"]
    answer = exarl("train", *short)
    assert answer.code == 0
    assert "used: 9 settings packaged for DQN-v0 with CartPole-v1" in answer.err
    assert "exarl describe DQN-v0 CartPole-v1" in answer.err
    shown = exarl("describe", "DQN-v0", "CartPole-v1").out
    assert "reward_scale = 0.1" in shown
    assert "CartPole-v1" in exarl("describe", "DQN-v0").out.splitlines()[-1]
    assert "DQN-v0" in exarl("describe", "CartPole-v1").out.splitlines()[-1]
    answer = exarl("train", *short, "--agent", "Random-v0")
    assert (answer.code, "used: " in answer.err) == (0, False)


def test_ones_own_settings_are_named_by_their_file(exarl: Any) -> None:
    file = Path("exarl/config/tuned/Random-v0/CartPole-v1.json")
    file.parent.mkdir(parents=True)
    file.write_text('{"block_steps": 8}')
    answer = exarl("train", "--agent", "Random-v0", "--total_steps", "8")
    assert f"1 setting in {file} for Random-v0 with CartPole-v1" in answer.err
    assert "block_steps = 8" in exarl("describe", "Random-v0", "CartPole-v1").out


def test_a_pair_without_settings_is_told_which_have_some(exarl: Any) -> None:
    exarl("describe", "DQN-v0", "Pendulum-v1").refused("no settings", "CartPole-v1")
    exarl("describe", "DQM-v0", "Pendulum-v1").refused("did you mean 'DQN-v0'?")


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["serve-env", "CartPole-v1"], "zmq", "remote"),
        (["check-env", "LunarLander-v3"], "Box2D", "box2d"),
        (["train", "--procs", "2"], None, "mpi"),
        (["sweep", "--gamma", "0.9,0.99"], "optuna", "sweep"),
    ],
)
def test_an_extra_is_named_with_the_command_that_installs_it(
    exarl: Any, monkeypatch: pytest.MonkeyPatch, words: list[str], package: str | None, extra: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    if package is not None:
        monkeypatch.setitem(sys.modules, package, None)
        found = importlib.util.find_spec
        monkeypatch.setattr(
            "importlib.util.find_spec",
            lambda name, *more: None if name == package else found(name, *more),
        )
    else:
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    exarl(*words).refused(f"pip install 'exarl[{extra}]'")
