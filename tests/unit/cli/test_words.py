"""Taking a command's own options out of its words."""

from __future__ import annotations

import pytest

from exarl.cli import words as line
from exarl.errors import ConfigError


@pytest.mark.parametrize("spelt", [["--procs", "2"], ["--procs=2"]])
def test_an_option_is_taken_out(spelt: list[str]) -> None:
    words = ["--a", "1", *spelt, "--b"]
    assert line.take(words, "procs") == "2"
    assert words == ["--a", "1", "--b"]


def test_an_option_that_is_absent() -> None:
    words = ["--a", "1"]
    assert line.take(words, "procs") is None
    assert line.take_count(words, "procs", 3) == 3
    assert words == ["--a", "1"]


def test_an_option_spelt_with_dashes() -> None:
    words = ["--run-dir", "x", "--run_dir=y"]
    assert line.take(words, "run_dir") == "y"
    assert words == []


def test_the_value_of_another_option_is_left_alone() -> None:
    words = ["--output_dir", "procs", "--env=--procs"]
    assert line.take(words, "procs") is None


@pytest.mark.parametrize(
    "words", [["--procs"], ["--procs", "--serial"], ["--procs="], ["--procs", ""]]
)
def test_an_option_without_its_value_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="--procs needs a value"):
        line.take(words, "procs")


@pytest.mark.parametrize(
    "text", ["0", "-1", "x", "1.5", "1e3", "²", "٣", "+1", "1_0", " 1", "9" * 5000]
)
def test_a_count_is_a_whole_number_of_at_least_one(text: str) -> None:
    with pytest.raises(ConfigError, match="procs is a whole number") as caught:
        line.take_count([f"--procs={text}"], "procs")
    assert len(str(caught.value)) < 200


def test_a_count() -> None:
    assert line.take_count(["--procs", "12"], "procs") == 12


def test_a_flag_is_taken_wherever_it_stands() -> None:
    words = ["--serial", "--a", "1", "--serial"]
    assert line.take_flag(words, "serial")
    assert words == ["--a", "1"]
    assert not line.take_flag(words, "serial")


def test_the_argument_comes_first() -> None:
    words = ["run", "--a", "1"]
    assert line.take_path(words, "run directory") == "run"
    assert words == ["--a", "1"]


@pytest.mark.parametrize("words", [[], ["--a", "run"], [""]])
def test_a_missing_argument_is_asked_for(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="which run directory"):
        line.take_path(words, "run directory")


def test_what_is_left_is_refused() -> None:
    line.nothing_left([])
    with pytest.raises(ConfigError, match="unexpected '--x'"):
        line.nothing_left(["--x", "1"])


def test_a_choice_names_the_nearest_option_or_all() -> None:
    line.check_choice("srun", ("srun", "ray"), "no launcher 'srun'")
    with pytest.raises(ConfigError, match=r"no launcher 'srum'; did you mean 'srun'\?"):
        line.check_choice("srum", ("srun", "ray"), "no launcher 'srum'")
    with pytest.raises(ConfigError, match=r"no launcher 'xyz' \(srun, ray\)"):
        line.check_choice("xyz", ("srun", "ray"), "no launcher 'xyz'")
