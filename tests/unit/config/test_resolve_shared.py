"""A name that two chosen components have is refused with the full names; one that one has is not."""

from __future__ import annotations

from typing import Any

import pytest

from exarl.cli.describe import catalogue
from exarl.config import LearnerConfig, schema_of
from exarl.errors import ConfigError

SELECTS = {"agent": "agent", "workflow": "workflow", "model": "model_type", "env": "env"}


def shared() -> list[tuple[str, dict[str, str]]]:
    """Every parameter that components of two families have, and one such component of each."""
    owners: dict[str, dict[str, str]] = {}
    for part in catalogue():
        for name in part.schema:
            owners.setdefault(name, {}).setdefault(part.kind, part.id)
    run = schema_of(LearnerConfig)
    return [(name, by) for name, by in owners.items() if len(by) > 1 and name not in run]


def choose(by: dict[str, str]) -> list[str]:
    return [word for kind, id in by.items() for word in (f"--{SELECTS[kind]}", id)]


def test_the_known_ones_are_found() -> None:
    assert {"noise", "precision", "address"} <= {name for name, _ in shared()}


@pytest.mark.parametrize(("name", "by"), shared(), ids=lambda value: str(value)[:12])
def test_a_shared_flag_is_refused_with_both_full_names(
    place: Any, name: str, by: dict[str, str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        place.configure(*choose(by), f"--{name}", "1")
    for kind in by:
        assert f"--{kind}.{name}" in str(refused.value)


def test_in_a_file_it_is_refused_as_well(place: Any) -> None:
    file = place.file("mine.json", {"agent": "TD3-v0", "env": "ExaCH-v0", "noise": 0.3})
    with pytest.raises(ConfigError, match=r"mine.json\): write agent.noise or env.noise"):
        place.configure(config=file)
    with pytest.raises(ConfigError, match=r"agent\.noise or env\.noise"):
        place.configure(agent="TD3-v0", env="ExaCH-v0", noise=0.3)


def test_the_full_name_is_taken(place: Any) -> None:
    words = ["--agent", "TD3-v0", "--env", "ExaCH-v0", "--env.noise", "0.3"]
    values = place.configure(*words).values
    assert values["env"]["noise"] == 0.3
    assert values["agent"]["noise"] != 0.3


@pytest.mark.parametrize(
    ("words", "family"),
    [
        (["--agent", "TD3-v0", "--env", "Pendulum-v1"], "agent"),
        (["--agent", "SAC-v0", "--env", "ExaCH-v0"], "env"),
    ],
)
def test_a_name_that_one_chosen_component_has_is_its_own(
    place: Any, words: list[str], family: str
) -> None:
    assert place.configure(*words, "--noise", "0.3").values[family]["noise"] == 0.3


def test_all_mistakes_are_named_at_once(place: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        place.configure("--lr", "1", "--gamma", "2", "--nonsense", "3", "--seed", "x")
    for part in ("'lr'", "did you mean 'learning_rate'?", "gamma must be", "'nonsense'", "seed is"):
        assert part in str(refused.value)
    with pytest.raises(ConfigError, match=r"'DQM-v0'.*'asinc'.*'CartPole'"):
        place.configure("--agent", "DQM-v0", "--workflow", "asinc", "--env", "CartPole")


def test_a_hundred_mistakes_are_still_one_short_line(place: Any) -> None:
    with pytest.raises(ConfigError, match="90 more") as refused:
        place.configure(*(word for n in range(100) for word in (f"--nonsense{n}", "1")))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("words", "example"),
    [
        (["--learning_rate"], "--learning_rate 0.001"),
        (["--learning_rate", "--gamma", "0.9"], "--learning_rate 0.001"),
        (["--env"], "--env CartPole-v1"),
        (["--run_dir"], "--run_dir VALUE"),
    ],
)
def test_a_flag_without_its_value_is_told_what_to_give(
    place: Any, words: list[str], example: str
) -> None:
    name = words[0].removeprefix("--")
    with pytest.raises(ConfigError, match=f"{name} needs a value .*{example}"):
        place.configure(*words)


def test_a_switch_needs_no_value(place: Any) -> None:
    assert place.configure("--normalize_rewards").values["agent"]["normalize_rewards"] is True
