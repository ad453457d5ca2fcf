"""Words of a command line: how keys and values may be spelt."""

from __future__ import annotations

from typing import Any

import pytest

from exarl.config import parse_flags
from exarl.errors import ConfigError


def test_a_flag_takes_the_next_word_or_what_follows_the_equals_sign() -> None:
    assert parse_flags(["--a", "1", "--b=2", "--c=x=y"]) == {"a": "1", "b": "2", "c": "x=y"}


def test_a_bare_flag_is_true() -> None:
    assert parse_flags(["--a", "--b", "1", "--c"]) == {"a": "true", "b": "1", "c": "true"}


def test_dashes_and_underscores_are_one() -> None:
    assert parse_flags(["--n-steps", "1"]) == parse_flags(["--n_steps", "1"]) == {"n_steps": "1"}


def test_values_keep_their_dashes_and_a_negative_number_is_a_value() -> None:
    assert parse_flags(["--env", "My-Env-v0", "--target-reward", "-5"]) == {
        "env": "My-Env-v0",
        "target_reward": "-5",
    }


def test_the_last_of_equal_flags_wins() -> None:
    assert parse_flags(["--a", "1", "--a", "2", "--a=3"]) == {"a": "3"}


@pytest.mark.parametrize("words", [["x"], ["--a", "1", "x"], ["-a", "1"], ["--"], [""], ["-"]])
def test_anything_else_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="on the command line"):
        parse_flags(words)


def test_the_predecessors_command_line_works(place: Any) -> None:
    configuration = place.configure("--n_steps", "100", "--epsilon", "0.1")
    assert configuration.learner.n_steps == 100
    assert configuration.values["agent"]["epsilon"] == 0.1


@pytest.mark.parametrize(
    "words",
    [
        ["--agent.epsilon", "0.25"],
        ["--agent.epsilon=0.25"],
        ["--epsilon=0.25"],
        ["--epsilon", ".25"],
        ["--epsilon", "25e-2"],
        ["--epsilon", " 0.25 "],
    ],
)
def test_a_number_in_all_its_spellings(place: Any, words: list[str]) -> None:
    assert place.configure(*words).values["agent"]["epsilon"] == 0.25


def test_a_family_may_be_spelt_out(place: Any) -> None:
    configuration = place.configure(
        "--agent.epsilon-min", "0.2", "--learner.seed=4", "--model.hidden", "[3]"
    )
    assert configuration.values["agent"]["epsilon_min"] == 0.2
    assert configuration.learner.seed == 4
    assert configuration.values["model"]["hidden"] == (3,)


@pytest.mark.parametrize(
    ("word", "value"),
    [("true", True), ("True", True), ("1", True), ("false", False), ("FALSE", False), ("0", False)],
)
def test_truth_in_all_its_spellings(place: Any, word: str, value: bool) -> None:
    assert place.configure("--dueling", word).values["agent"]["dueling"] is value


def test_a_bare_flag_turns_something_on(place: Any) -> None:
    agent = place.configure("--dueling", "--epsilon", "0.5").values["agent"]
    assert agent["dueling"] is True


@pytest.mark.parametrize("word", ["64,64", "[64,64]", "[64, 64]", "(64,64)", "64, 64"])
def test_a_list_in_all_its_spellings(place: Any, word: str) -> None:
    assert place.configure("--hidden", word).values["model"]["hidden"] == (64, 64)


def test_a_list_of_one_needs_no_comma(place: Any) -> None:
    assert place.configure("--hidden", "[64]").values["model"]["hidden"] == (64,)
    assert place.configure("--hidden", "64").values["model"]["hidden"] == (64,)


@pytest.mark.parametrize("word", ["null", "none", "None", "NONE"])
def test_nothing_in_all_its_spellings(place: Any, word: str) -> None:
    configuration = place.configure("--max_grad_norm", word, "--n_steps", word)
    assert configuration.values["agent"]["max_grad_norm"] is None
    assert configuration.learner.n_steps is None


@pytest.mark.parametrize("words", [["--target_reward", "-200"], ["--target-reward=-2e2"]])
def test_a_negative_number(place: Any, words: list[str]) -> None:
    assert place.configure(*words).learner.target_reward == -200.0


def test_a_word_that_looks_like_a_number_stays_a_word_where_one_is_wanted(place: Any) -> None:
    assert place.configure("--output_dir", "2024").learner.output_dir == "2024"


@pytest.mark.parametrize(
    ("word", "name"), [("[3, 3]", "error"), ("3", "error"), ("debug", "debug"), ("0", "debug")]
)
def test_the_log_level_of_the_predecessor_and_ours(place: Any, word: str, name: str) -> None:
    assert place.configure("--log_level", word).learner.log_level_name() == name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epslon", "1"], "unknown parameter 'epslon' .command line.; did you mean 'epsilon'"),
        (["--agent.gama", "1"], "did you mean 'gamma'"),
        (["--agnt.gamma", "1"], "unknown family 'agnt'.*did you mean 'agent'"),
        (["--n_step5", "1"], "did you mean 'n_step"),
        (["--epsilon", "x"], "epsilon is float, not 'x' .command line."),
        (["--epsilon", "1.5"], "epsilon must be >= 0, <= 1, not 1.5 .command line."),
        (["--epsilon", "nan"], "epsilon must be"),
        (["--seed", "1.5"], "seed is int, not '1.5'"),
        (["--n_steps", "0"], "n_steps must be >= 1"),
        (["--hidden", "64,0"], "hidden must be >= 1"),
        (["--loss", "l1"], 'loss is "huber" | "mse", not \'l1\''),
        (["--max_grad_norm", "0"], "max_grad_norm must be > 0"),
        (["--log_level", "[]"], "log_level"),
        (["--log_level", "loud"], "log_level is one of debug, .*command line"),
        (["--output_dir="], "output_dir"),
        (["--run_dir="], "run_dir"),
        (["--total_steps", "9" * 400], "total_steps"),
        (["--hidden", "[" * 3000], "hidden"),
    ],
)
def test_a_bad_word_is_named_with_its_origin_and_a_remedy(
    place: Any, words: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        place.configure(*words)
    assert "\n" not in str(caught.value)
