"""From sources to one frozen configuration: parameters of environments, old files, round trips."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from exarl import registry
from exarl.config import FAMILIES, resolve, stored_source
from exarl.errors import ConfigError
from exarl.run.build import build_episode
from exarl.run.configure import lookup

SEEDS_LEARNER = {
    "agent": "DQN-v0",
    "env": "CartPole-v0",
    "workflow": "async",
    "n_episodes": 10,
    "n_steps": 10,
    "output_dir": "./results_dir/",
    "process_per_env": 1,
    "model_type": "LSTM",
    "action_type": "variable",
    "log_level": [3, 3],
    "profile": "none",
}
SEEDS_DQN = {
    "gamma": 0.75,
    "epsilon": 1.0,
    "epsilon_min": 0.01,
    "epsilon_decay": 0.999,
    "learning_rate": 0.001,
    "batch_size": 5,
}


class Recorder(gymnasium.Env[Any, Any]):
    """Keeps what its constructor was given."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(
        self,
        size: int = 4,
        rate: float = 0.5,
        label: str = "plain",
        data_dir: Path = Path("data"),
        limit: float = float("inf"),
        grid: tuple[int, int] = (2, 3),
        offsets: Any = np.zeros(2),  # noqa: B008
        seed: int = 7,
    ) -> None:
        self.given = {"size": size, "rate": rate, "label": label, "seed": seed, "grid": grid}
        self.kept = {"data_dir": data_dir, "limit": limit, "offsets": offsets}


class Demanding(Recorder):
    """Cannot be made without being told where."""

    def __init__(self, where: str, **others: Any) -> None:
        super().__init__()
        self.given = {"where": where, **others}


@pytest.fixture(autouse=True)
def environments() -> Iterator[None]:
    kinds = {"Recorder-v0": Recorder, "Demanding-v0": Demanding}
    for id, kind in kinds.items():
        gymnasium.register(id, entry_point=kind)
    yield
    for id in kinds:
        del gymnasium.registry[id]


def made(configuration: Any) -> Any:
    """The environment that this configuration makes."""
    return build_episode(configuration)[0].unwrapped


# -- environments ------------------------------------------------------------------------------------


def test_parameters_reach_the_environments_constructor(place: Any) -> None:
    words = ["--env", "Recorder-v0", "--size", "8", "--rate", "1", "--label", "5", "--grid", "4,5"]
    given = made(place.configure(*words)).given
    assert given == {"size": 8, "rate": 1.0, "label": "5", "seed": 7, "grid": (4, 5)}


def test_what_is_not_given_keeps_the_constructors_default(place: Any) -> None:
    kept = made(place.configure("--env", "Recorder-v0")).kept
    assert kept["data_dir"] == Path("data")
    assert kept["limit"] == float("inf")
    assert np.array_equal(kept["offsets"], np.zeros(2))


def test_a_name_that_the_run_has_too_goes_to_the_run_unless_spelt_out(place: Any) -> None:
    configuration = place.configure("--env", "Recorder-v0", "--seed", "1", "--env.seed", "2")
    assert configuration.learner.seed == 1
    assert made(configuration).given["seed"] == 2


def test_a_file_of_the_environment_reaches_the_constructor(place: Any) -> None:
    place.project("env_cfg/Recorder-v0.json", {"size": 3, "seed": 11, "data_dir": "elsewhere"})
    environment = made(place.configure("--env", "Recorder-v0"))
    assert environment.given["size"] == 3
    assert environment.given["seed"] == 11
    assert str(environment.kept["data_dir"]) == "elsewhere"


@pytest.mark.parametrize(
    "words",
    [
        ["--size", "big"],
        ["--size", "1.5"],
        ["--rate", "fast"],
        ["--grid", "1,2,3"],
        ["--sise", "1"],
    ],
)
def test_a_wrong_parameter_of_an_environment_is_refused(place: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError, match=words[0].removeprefix("--")):
        place.configure("--env", "Recorder-v0", *words)


def test_a_constructor_that_takes_anything_gets_it_under_the_familys_name(place: Any) -> None:
    configuration = place.configure("--env", "Demanding-v0", "--where", "x", "--env.deep", "5")
    assert made(configuration).given == {"where": "x", "deep": 5}
    with pytest.raises(ConfigError, match="unknown parameter 'deep'"):
        place.configure("--env", "Demanding-v0", "--where", "x", "--deep", "5")


def test_a_value_an_environment_cannot_do_without_is_asked_for(place: Any) -> None:
    with pytest.raises(ConfigError, match="env 'Demanding-v0' needs a value for 'where'"):
        place.configure("--env", "Demanding-v0")


def test_what_gymnasium_leaves_to_the_framework_is_no_parameter(place: Any) -> None:
    for word in ("--render_mode", "--comm"):
        with pytest.raises(ConfigError, match="unknown parameter"):
            place.configure("--env", "ExaCartPole-v1", word, "human")


# -- files of the original EXARL -----------------------------------------------------------------------


def test_the_seeds_example_resolves_with_what_there_is(place: Any) -> None:
    given = place.file("learner_cfg.json", SEEDS_LEARNER)
    place.project("agent_cfg/DQN-v0.json", SEEDS_DQN)
    words = ["--workflow", "sync", "--model_type", "MLP"]
    learner = place.configure(*words, config=given).learner
    assert (learner.env, learner.n_episodes, learner.n_steps) == ("CartPole-v0", 10, 10)
    assert learner.log_level_name() == "error"
    assert learner.total_steps is None


def test_the_seeds_folder_is_read_where_one_works(place: Any) -> None:
    place.project("learner_cfg.json", SEEDS_LEARNER)
    place.project("agent_cfg/DQN-v0.json", SEEDS_DQN)
    place.project("workflow_cfg/default_workflow_cfg.json", {"default_workflow_cfg": "You can"})
    configuration = place.configure("--workflow", "sync", "--model_type", "MLP")
    assert {key: configuration.values["agent"][key] for key in SEEDS_DQN} == SEEDS_DQN


def test_the_seeds_example_as_it_stands_asks_for_what_is_planned(place: Any) -> None:
    planned = [
        id
        for id, known in (
            (SEEDS_LEARNER["workflow"], registry.workflows),
            (SEEDS_LEARNER["model_type"], registry.networks),
        )
        if id not in known
    ]
    given = place.file("learner_cfg.json", SEEDS_LEARNER)
    if not planned:
        place.configure(config=given)
        return
    with pytest.raises(ConfigError, match="is planned but not in this version") as caught:
        place.configure(config=given)
    message = str(caught.value)
    assert any(f"'{id}'" in message for id in planned)
    assert "learner_cfg.json" in message
    assert "\n" not in message


# -- resolving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--n_episodes", "5", "--log_level", "[3,3]", "--hidden", "3,4", "--max_grad_norm", "null"],
        ["--env", "Pendulum-v1", "--g", "3"],
        ["--env", "FrozenLake-v1", "--map_name", "8x8", "--is_slippery", "false"],
        ["--env", "Recorder-v0", "--size", "9", "--grid", "7,8"],
        ["--env", "ExaCartPole-v1", "--intervals", "10"],
    ],
)
def test_a_configuration_comes_back_from_its_file(place: Any, words: list[str]) -> None:
    first = place.configure(*words)
    text = json.dumps(first.to_json(), allow_nan=True)
    place.user("learner_cfg.json", {"seed": 99})  # no layer may reach a stored run
    again = resolve(lookup, [stored_source(json.loads(text), "config.json")])
    assert again.learner == first.learner
    for family in FAMILIES:
        assert again.values[family].keys() == first.values[family].keys()
        for key, value in first.values[family].items():
            assert _same(again.values[family][key], value), f"{family}.{key}"


def _same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other)) if isinstance(other, np.ndarray) else one == other


def test_a_stored_environment_is_made_again_as_it_was(place: Any) -> None:
    first = place.configure("--env", "Recorder-v0", "--size", "9")
    stored = json.loads(json.dumps(first.to_json()))
    again = made(resolve(lookup, [stored_source(stored, "config.json")]))
    assert again.given == made(first).given
    assert again.kept["data_dir"] == Path("data")
    assert again.kept["limit"] == float("inf")


@pytest.mark.parametrize(
    "data", [[], {}, 5, "x", None, {"agent": []}, {"agent": None}, {"learner": "x"}, {"env": 5}]
)
def test_a_stored_configuration_of_another_shape_is_refused(data: Any) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        resolve(lookup, [stored_source(data, "run/config.json")])


def test_a_stored_run_with_a_change_on_top(place: Any) -> None:
    stored = stored_source(place.configure("--total_steps", "10").to_json(), "config.json")
    more = dataclasses.replace(stored, values={"total_steps": 20}, origin="command line")
    again = resolve(lookup, [stored, more])
    assert again.learner.total_steps == 20
    assert again.origins["learner.total_steps"] == "command line"
    assert again.origins["learner.env"] == "config.json"


@pytest.mark.parametrize(
    ("word", "value"),
    [("n_episodes", "5"), ("wall_time", "1.5"), ("target_reward", "-3"), ("total_steps", "7")],
)
def test_the_default_stop_gives_way_to_any_other(place: Any, word: str, value: str) -> None:
    learner = place.configure(f"--{word}", value).learner
    assert learner.total_steps == (7 if word == "total_steps" else None)
    assert getattr(learner, word) == float(value)


def test_the_default_stop_says_why_it_is_there(place: Any) -> None:
    origins = place.configure().origins
    assert origins["learner.total_steps"] == "default, since no other stop was given"


def test_a_configuration_is_frozen(place: Any) -> None:
    configuration = place.configure()
    with pytest.raises(dataclasses.FrozenInstanceError):
        configuration.learner = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        configuration.learner.seed = 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--agent", "DQN"], "unknown agent 'DQN'; did you mean 'DQN-v0'.*command line"),
        (["--env", "CartPole-v7"], "unknown environment 'CartPole-v7'; did you mean 'CartPole-v1'"),
        (["--workflow", "snyc"], "unknown workflow 'snyc'; did you mean 'sync'"),
        (["--model_type", "MPL"], "unknown network 'MPL'; did you mean 'MLP'"),
        (["--env", "ExaCovid-v9"], "unknown environment"),
        (["--env", ""], "unknown environment ''"),
        (["--env", "A" * 5000], "unknown environment"),
    ],
)
def test_an_unknown_id_is_named_with_its_origin(place: Any, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        place.configure(*words)


def test_an_unknown_id_in_a_file_is_named_with_the_file(place: Any) -> None:
    path = place.user("learner_cfg.json", {"agent": "DQM-v0"})
    with pytest.raises(ConfigError, match="did you mean 'DQN-v0'") as caught:
        place.configure()
    assert str(path) in str(caught.value)
