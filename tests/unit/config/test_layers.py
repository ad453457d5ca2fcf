"""Layers: packaged < user < project or --config < command line, and where each value came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exarl.agents.dqn import DQN
from exarl.config import read_source
from exarl.config.layers import layer_folders
from exarl.errors import ConfigError
from exarl.registry import agents


def test_packaged_defaults_run_a_first_experiment(place: Any) -> None:
    learner = place.configure().learner
    assert (learner.agent, learner.env) == ("DQN-v0", "CartPole-v1")
    assert (learner.workflow, learner.model_type) == ("sync", "MLP")
    assert learner.total_steps == 100_000


def test_each_layer_wins_over_the_one_below(place: Any) -> None:
    seen = [place.configure().learner.reward_window]
    place.user("learner_cfg.json", {"reward_window": 11})
    seen.append(place.configure().learner.reward_window)
    place.project("learner_cfg.json", {"reward_window": 12})
    seen.append(place.configure().learner.reward_window)
    seen.append(place.configure(reward_window=13).learner.reward_window)
    seen.append(place.configure("--reward_window", "14", reward_window=13).learner.reward_window)
    assert seen == [100, 11, 12, 13, 14]


def test_each_value_knows_its_origin(place: Any) -> None:
    user = place.user("learner_cfg.json", {"seed": 1, "n_steps": 5})
    place.project("learner_cfg.json", {"seed": 2, "block_steps": 16})
    origins = place.configure("--epsilon", "0.5", tau=0.1).origins
    assert origins["learner.n_steps"] == str(user)
    assert Path(origins["learner.seed"]) == Path("exarl/config/learner_cfg.json")
    assert Path(origins["learner.block_steps"]) == Path("exarl/config/learner_cfg.json")
    assert origins["agent.epsilon"] == "command line"
    assert origins["agent.tau"] == "argument"
    assert origins["agent.gamma"] == "default"
    assert origins["learner.agent"].endswith("config/defaults/learner_cfg.json")


def test_every_value_has_an_origin(place: Any) -> None:
    configuration = place.configure("--env", "Pendulum-v1", "--g", "9")
    named = {f"{f}.{key}" for f, values in configuration.values.items() for key in values}
    assert named == set(configuration.origins)


def test_a_file_given_with_config_takes_the_place_of_the_project(place: Any) -> None:
    place.user("learner_cfg.json", {"seed": 1, "reward_window": 11})
    place.project("learner_cfg.json", {"seed": 2, "block_steps": 8})
    given = place.file("mine.json", {"seed": 3})
    learner = place.configure(config=given).learner
    assert (learner.seed, learner.reward_window, learner.block_steps) == (3, 11, 32)


def test_a_folder_given_with_config_takes_the_place_of_the_project(place: Any) -> None:
    place.project("learner_cfg.json", {"seed": 2, "block_steps": 8})
    place.file("other/learner_cfg.json", {"seed": 4})
    place.file("other/agent_cfg/DQN-v0.json", {"gamma": 0.5})
    configuration = place.configure(config=place.work / "other")
    assert (configuration.learner.seed, configuration.learner.block_steps) == (4, 32)
    assert configuration.values["agent"]["gamma"] == 0.5


def test_an_empty_folder_given_with_config_changes_nothing(place: Any) -> None:
    (place.work / "empty").mkdir()
    assert place.configure(config=place.work / "empty").values == place.configure().values


def test_config_expands_the_home_folder(place: Any) -> None:
    place.user("../mine.json", {"seed": 8})
    assert place.configure(config="~/.exarl/mine.json").learner.seed == 8


@pytest.mark.parametrize(
    ("name", "family", "key", "value"),
    [
        ("agent_cfg/DQN-v0.json", "agent", "gamma", 0.25),
        ("model_cfg/MLP.json", "model", "activation", "tanh"),
        ("env_cfg/CartPole-v1.json", "env", "sutton_barto_reward", True),
    ],
)
def test_each_component_has_a_file_of_its_own(
    place: Any, name: str, family: str, key: str, value: object
) -> None:
    place.project(name, {key: value})
    configuration = place.configure()
    assert configuration.values[family][key] == value
    assert Path(configuration.origins[f"{family}.{key}"]) == Path("exarl/config") / name


def test_only_the_files_of_the_chosen_components_are_read(place: Any) -> None:
    place.project("agent_cfg/Other-v0.json", "this is not JSON")
    place.project("env_cfg/Acrobot-v1.json", {"nonsense": 1})
    place.project("workflow_cfg/default_workflow_cfg.json", {"default_workflow_cfg": "..."})
    place.configure()
    with pytest.raises(ConfigError, match="nonsense"):
        place.configure("--env", "Acrobot-v1")


def test_the_tuned_file_of_the_pair_wins_within_its_folder(place: Any) -> None:
    place.user("tuned/DQN-v0/CartPole-v1.json", {"gamma": 0.1, "block_steps": 4, "epsilon": 0.3})
    place.user("agent_cfg/DQN-v0.json", {"gamma": 0.2, "epsilon": 0.4})
    place.project("agent_cfg/DQN-v0.json", {"epsilon": 0.5})
    configuration = place.configure()
    assert configuration.values["agent"]["gamma"] == 0.1
    assert configuration.values["agent"]["epsilon"] == 0.5
    assert configuration.learner.block_steps == 4
    assert "tuned" in configuration.origins["agent.gamma"]
    other = place.configure("--env", "MountainCar-v0")
    assert other.values["agent"]["gamma"] == 0.2
    assert other.learner.block_steps == 32


PACKAGED = layer_folders(None)[0]


@pytest.mark.parametrize(
    "path", sorted(PACKAGED.rglob("*.json")), ids=lambda path: path.relative_to(PACKAGED).as_posix()
)
def test_every_packaged_file_is_valid(place: Any, path: Path) -> None:
    words: list[str] = []
    name = path.relative_to(PACKAGED)
    if name.parts[0] == "tuned":
        words = ["--agent", name.parts[1], "--env", "/".join(name.parts[2:]).removesuffix(".json")]
    origins = place.configure(*words).origins.values()
    assert not words or str(path) in origins


def test_the_users_file_wins_over_what_is_packaged_for_the_pair(place: Any) -> None:
    place.user("agent_cfg/DQN-v0.json", {"batch_size": 7, "epsilon_min": 0.3})
    agent = place.configure("--env", "CartPole-v1").values["agent"]
    assert (agent["batch_size"], agent["epsilon_min"]) == (7, 0.3)


def test_the_ids_of_a_higher_layer_choose_the_files_of_the_lower_ones(place: Any) -> None:
    place.user("env_cfg/Pendulum-v1.json", {"g": 3.5})
    place.project("learner_cfg.json", {"env": "Pendulum-v1"})
    assert place.configure().values["env"]["g"] == 3.5


def test_a_component_file_cannot_set_the_run(place: Any) -> None:
    place.project("agent_cfg/DQN-v0.json", {"n_episodes": 5})
    with pytest.raises(ConfigError, match=r"unknown parameter .n_episodes. .*DQN-v0\.json"):
        place.configure()


def test_families_may_be_nested_in_a_file(place: Any) -> None:
    given = place.file(
        "nested.json",
        {
            "learner": {"seed": 9, "env": "Pendulum-v1"},
            "agent": {"epsilon": 0.5},
            "model": {"hidden": [7]},
            "workflow": {},
            "env": {"g": 2.5},
        },
    )
    configuration = place.configure(config=given)
    assert configuration.learner.seed == 9
    assert configuration.learner.env == "Pendulum-v1"
    assert configuration.values["agent"]["epsilon"] == 0.5
    assert configuration.values["model"]["hidden"] == (7,)
    assert configuration.values["env"]["g"] == 2.5
    assert configuration.origins["env.g"] == str(given)


def test_nested_and_flat_keys_mix(place: Any) -> None:
    given = place.file("mixed.json", {"agent": {"epsilon": 0.5}, "gamma": 0.5, "agent.tau": 0.5})
    agent = place.configure(config=given).values["agent"]
    assert (agent["epsilon"], agent["gamma"], agent["tau"]) == (0.5, 0.5, 0.5)


def test_a_project_folder_is_looked_for_where_one_works(place: Any) -> None:
    packaged, user, project = layer_folders(None)
    assert (packaged / "learner_cfg.json").is_file()
    assert user == place.home / ".exarl/config"
    assert project.resolve() == place.work / "exarl/config"


def test_a_file_written_by_windows_is_read(place: Any) -> None:
    path = place.work / "bom.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"seed": 3}).encode() + b"\r\n")
    assert place.configure(config=path).learner.seed == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "1: not JSON"),
        (b'{\n"a": 1,\n}', "[23]: not JSON"),  # since Python 3.13 the line of the comma
        (b"[1]", "must hold a JSON object, not list"),
        (b"\xff\xfe{}", "UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"total_steps": ' + b"9" * 5000 + b"}", "not JSON|too (long|large|big|many)"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_source(path)
    assert "bad.json" in str(caught.value)


def test_a_missing_file_is_named(place: Any) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nothing\.json"):
        place.configure(config=place.work / "nothing.json")


def test_a_bad_value_in_a_lower_layer_is_refused_even_if_overridden(place: Any) -> None:
    path = place.user("learner_cfg.json", {"seed": -1})
    with pytest.raises(ConfigError, match="seed must be >= 0") as caught:
        place.configure("--seed", "1")
    assert str(path) in str(caught.value)


def test_an_agent_has_defaults_of_its_own_which_every_layer_overrides(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"block_steps": 64, "reward_window": 9, "models": {"MLP": {"hidden": [8]}, "CNN": {}}}
    monkeypatch.setattr(DQN, "defaults", own)
    place.user("learner_cfg.json", {"reward_window": 11})
    configuration = place.configure("--env", "MountainCar-v0")
    assert configuration.learner.block_steps == 64
    assert configuration.learner.reward_window == 11
    assert configuration.values["model"]["hidden"] == (8,)
    assert configuration.origins["model.hidden"] == "default of DQN-v0"
    assert place.configure("--block_steps", "3").learner.block_steps == 3
    assert place.configure("--agent", "Random-v0").learner.block_steps == 32
    assert place.configure("--model_type", "LSTM").values["model"]["hidden"] == (64,)


def test_a_wrong_default_of_an_agent_is_named(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DQN, "defaults", {"blocksteps": 64})
    with pytest.raises(ConfigError, match=r"'blocksteps' \(default of DQN-v0\)"):
        place.configure()


@pytest.mark.parametrize("id", sorted(agents.ids()))
def test_every_agents_own_defaults_are_valid(place: Any, id: str) -> None:
    defaults = agents.load(id).defaults
    for model in defaults.get("models", {"MLP": {}}):
        env = "MountainCarContinuous-v0" if id in ("DDPG-v0", "TD3-v0") else "MountainCar-v0"
        configuration = place.configure("--agent", id, "--env", env, "--model_type", model)
        used = [o for o in configuration.origins.values() if o == f"default of {id}"]
        expected = {key for key in defaults if key != "models"}
        assert len(used) == len(expected) + len(defaults.get("models", {}).get(model, {}))
