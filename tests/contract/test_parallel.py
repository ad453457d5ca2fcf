"""Several agents in one simulation, in every workflow with a rollout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from support.jobs import PYTHON, assert_same, everything_of, run, summary_of, under_mpi

import exarl
from exarl import ExaLearner
from exarl.cli.main import main
from exarl.errors import ConfigError
from exarl.run import play

SETTINGS: dict[str, Any] = {
    "env": "support.parallel:Rope-v0",
    "agent": "A2C-v0",
    "hidden": [8],
    "block_steps": 7,
    "envs_per_actor": 6,
    "total_steps": 210,
    "log_info": ["move"],
}


CHASE = ["cat=cat", "mouse=mouse_*"]
"""The policies of ``Chase-v0``, whose spaces differ."""


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "draw_curve", lambda *_: None)


def train(run_dir: Path, **others: Any) -> None:
    given = {**SETTINGS, **others}
    ExaLearner(argv=[], serial=True, progress=False, run_dir=str(run_dir), **given).run()


@pytest.mark.parametrize(
    ("id", "agent"),
    [
        ("Rope-v0", "A2C-v0"),
        ("KeptRope-v0", "Random-v0"),
        ("Visitors-v0", "PPO-v0"),
        pytest.param("KeptVisitors-v0", "DQN-v0", marks=pytest.mark.slow),
        pytest.param("Chase-v0", "A2C-v0", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_continues_bit_by_bit(id: str, agent: str, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    settings = {"env": f"support.parallel:{id}", "agent": agent, "checkpoint_interval": 1e6}
    settings |= {"agents_change": "Visitors" in id}
    settings |= {"policies": CHASE, "log_info": []} if "Chase" in id else {}
    train(whole, **settings)
    for steps in (84, 210):  # within episodes
        train(parts, **settings, total_steps=steps)
    assert_same(everything_of(parts), everything_of(whole))


def test_a_policy_is_evaluated_in_whole_episodes(tmp_path: Path) -> None:
    run_dir, asked = tmp_path / "run", []
    train(run_dir, eval_interval=100, eval_episodes=2)
    trained = exarl.evaluate(run_dir, episodes=3)

    def controller(observation: Any, agent: str) -> int:
        asked.append(agent)
        return int(observation[0] < 0)

    other = exarl.evaluate(controller, env=SETTINGS["env"], episodes=3)
    assert trained is not None and other is not None
    assert (trained.lengths == other.lengths).all()  # the same episodes
    assert asked[:4] == ["left", "middle", "right", "left"]
    assert (other.rewards > trained.rewards).all()
    assert exarl.load(run_dir).act([0.5, 0.1, 0]) in (0, 1)


def test_masks_of_agents_are_respected(tmp_path: Path) -> None:
    train(tmp_path / "run", env="support.parallel:MaskedRope-v0", agent="Random-v0")
    found = exarl.evaluate(tmp_path / "run", episodes=2)
    best = exarl.evaluate(lambda o, mask: int(mask[1]), env="support.parallel:MaskedRope-v0",
                          episodes=2)  # fmt: skip
    assert found is not None and best is not None
    assert found.rewards == pytest.approx(best.rewards)


def test_policies_are_trained_evaluated_loaded_and_exported_by_name(tmp_path: Path) -> None:
    run_dir, env = tmp_path / "run", "support.parallel:Chase-v0"
    train(run_dir, env=env, policies=CHASE, log_info=[], total_steps=420, eval_interval=200,
          eval_episodes=2)  # fmt: skip
    header = (run_dir / "progress.csv").read_text().splitlines()[0].split(",")
    assert {"cat/loss", "mouse/loss", "cat/reward_mean", "mouse/reward_mean"} <= {*header}
    found = exarl.evaluate(run_dir, episodes=4)
    assert found is not None and found.lengths.min() >= 5
    per_agent = (found.info["info/cat_return_mean"] + 2 * found.info["info/mouse_return_mean"]) / 3
    assert per_agent == pytest.approx(found.reward_mean)
    cat, mouse = (exarl.load(run_dir, policy=name) for name in ("cat", "mouse"))
    assert cat.act([0.1, 0.2, 0.3]) in (0, 1, 2)
    assert mouse.act([0.1, 0.2, 1, 0]).shape == (2,)
    with pytest.raises(ConfigError, match="has the policies cat, mouse, not 'dog'"):
        exarl.load(run_dir, policy="dog")
    assert main(["export", str(run_dir), "--format", "npz", "--policy", "mouse"]) == 0
    assert main(["export", str(run_dir), "--format", "npz", "--force"]) == 2


@pytest.mark.parametrize(
    ("policies", "why"),
    [
        ([], "cat and mouse_0 have different observation spaces"),
        (["cat=cat"], "agent mouse_0 has no policy"),
        (["cat=cat", "all=*"], "agent cat has the policies cat and all"),
        (["cat=cat", "mouse=mouse_*", "dog=dog"], "'dog' of dog matches no agent of cat, mouse_0"),
        (["cat"], "'cat' is no NAME=AGENTS"),
    ],
)
def test_every_agent_has_one_policy(policies: list[str], why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        train(tmp_path / "run", env="support.parallel:Chase-v0", policies=policies)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"envs_per_actor": 4}, "must be a multiple of 3, such as 6"),
        ({"env_failure": "restart"}, "env_failure restart cannot be used with"),
        ({"env_isolation": "process"}, "several agents, which need inline"),
        ({"workflow": "fused"}, "pure functions"),
        ({"workflow": "fused", "agents_change": True}, "workflow fused cannot have"),
        ({"env": "ExaCartPole-v1", "agents_change": True}, "is not one of several agents"),
        ({"env": "ExaCartPole-v1", "policies": ["all=*"]}, "is not one of several agents"),
        (
            {"agent": "DQN-v0", "model_type": "LSTM", "hidden": [], "agents_change": True},
            "without memory",
        ),
    ],
)
def test_what_needs_one_agent_is_refused_in_one_line(
    words: dict[str, Any], why: str, tmp_path: Path
) -> None:
    settings = {"log_info": [], **words}
    with pytest.raises(ConfigError, match=why) as refused:
        train(tmp_path / "run", **settings)
    assert "\n" not in str(refused.value)


def test_proposed_settings_are_such_as_it_can_be_trained_with(tmp_path: Path) -> None:
    flags = ["--env", str(SETTINGS["env"]), "--agent", "Random-v0", "--total_steps", "60", "--auto"]
    assert main(["train", *flags, "--run_dir", str(tmp_path / "run")]) == 0
    assert summary_of(tmp_path / "run")["timesteps_total"] >= 60


def test_a_task_of_pettingzoo(tmp_path: Path) -> None:
    spread = pytest.importorskip("mpe2.simple_spread_v3")
    gymnasium.register("Spread-v0", spread.parallel_env)
    try:
        train(tmp_path / "run", env="Spread-v0", agent="Random-v0", log_info=[], total_steps=420)
        found = exarl.evaluate(tmp_path / "run", episodes=2)
    finally:
        gymnasium.registry.pop("Spread-v0")
    assert found is not None and [*found.lengths] == [25, 25]


WORKFLOWS = ["sync", "async", "rma", "seed", "elastic"]


@pytest.mark.slow
@pytest.mark.parametrize("workflow", WORKFLOWS)
@pytest.mark.parametrize("id", ["Rope-v0", "Visitors-v0", "Chase-v0"])
def test_they_act_on_other_ranks(id: str, workflow: str, tmp_path: Path) -> None:
    """Two actors with two simulations each; the trained policy plays whole episodes."""
    given = {k: ",".join(v) if k == "log_info" else v for k, v in SETTINGS.items()}
    given |= {"env": f"support.parallel:{id}", "agents_change": str(id == "Visitors-v0").lower()}
    if id == "Chase-v0":
        del given["log_info"]
        given["policies"] = ",".join(CHASE)
    words = [f"--{name}={value}" for name, value in given.items()]
    folders = str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")
    environ = {"PYTHONPATH": os.pathsep.join(folders)}
    command = [PYTHON, "-m", "exarl", "train", *words, f"--run_dir={tmp_path / 'run'}"]
    if workflow == "elastic":
        pytest.importorskip("ray")
        run([*command, "--workflow=elastic", "--n_actors=2"], environ=environ).ok()
    else:
        run(under_mpi(3, [*command, f"--workflow={workflow}"]), environ=environ).ok()
    assert summary_of(tmp_path / "run")["timesteps_total"] >= 210
    evaluated = exarl.evaluate(tmp_path / "run", episodes=2)
    assert evaluated is not None and evaluated.lengths.max() <= 12


@pytest.mark.slow
def test_on_ranks_too_a_stopped_run_continues_bit_by_bit(tmp_path: Path) -> None:
    """Two actors; agents that come and go, and have two policies."""
    words = [
        *("--env=support.parallel:Visitors-v0", "--agents_change=true", "--agent=A2C-v0"),
        *("--policies=one=left,others=[mr]*", "--envs_per_actor=6"),
        *("--hidden=8", "--block_steps=7", "--checkpoint_interval=1e6"),
    ]
    folders = str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")
    environ = {"PYTHONPATH": os.pathsep.join(folders)}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for run_dir, steps in ((whole, 504), (parts, 168), (parts, 504)):
        own = [f"--run_dir={run_dir}", f"--total_steps={steps}"]
        run(under_mpi(3, [PYTHON, "-m", "exarl", "train", *words, *own]), environ=environ).ok()
    assert_same(everything_of(parts), everything_of(whole))


@pytest.mark.slow
def test_two_learners_train_several_policies_together(tmp_path: Path) -> None:
    """``check_learners`` ends the run if their weights differ."""
    words = [
        *("--env=support.parallel:Visitors-v0", "--agents_change=true", "--agent=A2C-v0"),
        *("--policies=one=left,others=[mr]*", "--learner_procs=2", "--envs_per_actor=6"),
        *("--hidden=8", "--block_steps=7", "--workflow=async", "--check_learners=1"),
        *("--total_steps=504", f"--run_dir={tmp_path / 'run'}"),
    ]
    folders = str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")
    environ = {"PYTHONPATH": os.pathsep.join(folders)}
    run(under_mpi(4, [PYTHON, "-m", "exarl", "train", *words]), environ=environ).ok()
    assert summary_of(tmp_path / "run")["timesteps_total"] >= 504
