"""What MBPO accepts, and what it makes of it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from support.learning import continuous_spec, discrete_spec, make_agent

from exarl import ExaLearner
from exarl.agents.mbpo import MBPOConfig, horizon_after, own_actions
from exarl.envs.base import described
from exarl.errors import ConfigError
from exarl.types import ArraySpec, EnvSpec


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"base": "PPO-v0"}, "single transitions"),
        ({"base": "MBPO-v0"}, "single transitions"),
        ({"base": "TD3-v0", "base_parameters": ("policy_dely=2",)}, "did you mean 'policy_delay'"),
        ({"base": "TD3-v0", "base_parameters": ("policy_delay=no",)}, "policy_delay is int"),
        ({"base_parameters": ("updates_per_step=2",)}, "is a parameter of MBPO-v0"),
        ({"base": "DQN-v0"}, "needs discrete actions"),
        ({"n_step": 3}, "n_step cannot"),
        ({"priority_scale": 0.6}, "priority_scale cannot"),
        ({"constraints": ("cost<=1",)}, "constraints cannot"),
        ({"model_members": 2}, "model_elites=5"),
    ],
)
def test_what_cannot_be_learned_is_refused(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        make_agent(continuous_spec(), id="MBPO-v0", **parameters)
    assert "\n" not in str(refused.value)


def test_images_are_refused() -> None:
    spec = EnvSpec("Toy-v0", ArraySpec((8, 8, 3), "uint8"), ArraySpec((), "int64"), 2)
    with pytest.raises(ConfigError, match="images"):
        make_agent(spec, id="MBPO-v0")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"workflow": "fused"}, "cost nothing in workflow 'fused': use SAC-v0"),
        ({"model_type": "LSTM"}, "memory"),
        ({"reward_function": "no_such_module:reward"}, "cannot be imported"),
        ({"learner_devices": 2}, "learner_devices cannot"),
    ],
)
def test_runs_that_make_no_sense_are_refused_before_anything_is_written(
    words: dict[str, Any], reason: str, tmp_path: Any
) -> None:
    run = tmp_path / "run"
    chosen = {"agent": "MBPO-v0", "env": "Pendulum-v1", "total_steps": 100, **words}
    with pytest.raises(ConfigError, match=reason):
        ExaLearner(argv=[], serial=True, progress=False, run_dir=str(run), **chosen).run()
    assert not run.exists()


@pytest.mark.parametrize(
    ("base", "discrete", "critics"),
    [("SAC-v0", True, 2), ("DQN-v0", True, 0), ("DDPG-v0", False, 1), ("TD3-v0", False, 2)],
)
def test_any_off_policy_agent_is_a_base(base: str, discrete: bool, critics: int) -> None:
    spec = discrete_spec() if discrete else continuous_spec()
    agent = make_agent(spec, id="MBPO-v0", base=base, batch_size=17)
    assert sum(name.startswith("q") and name != "q" for name in agent.algorithm.networks) == critics
    assert agent.algorithm.config.batch_size == 17
    assert {"model_error", "model_persistence", "model_used"} <= set(agent.metrics)


def test_rollouts_grow_with_the_steps() -> None:
    config = MBPOConfig(horizon=1, horizon_end=5, horizon_steps=100)
    assert [horizon_after(config, n) for n in (0, 24, 25, 50, 99, 100, 10**6)] == [
        1,
        1,
        2,
        3,
        4,
        5,
        5,
    ]
    assert horizon_after(MBPOConfig(horizon=3), 10**6) == 3


def test_actions_are_stretched_to_the_environments_box() -> None:
    spec = EnvSpec(
        "Toy-v0",
        ArraySpec((3,), "float32"),
        ArraySpec((2,), "float32"),
        None,
        (-2.0, 0.0),
        (2.0, 1.0),
    )
    found = own_actions(spec, np.array([[-1, -1], [0, 0], [1, 2]], np.float32))
    np.testing.assert_allclose(found, [[-2, 0], [0, 0.5], [2, 1]])
    assert own_actions(discrete_spec(), np.array([1, 0])).tolist() == [1, 0]


def test_an_environment_names_its_functions() -> None:
    env = gymnasium.make("Pendulum-v1")
    assert described(env) == {}
    env.unwrapped.reward_function = "mine:reward"  # type: ignore[attr-defined]
    assert described(env) == {"reward_function": "mine:reward"}
