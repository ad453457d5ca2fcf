"""The flags of an RLlib training script, in EXARL's terms."""

from __future__ import annotations

import pytest

from exarl.cli.aliases import modern
from exarl.errors import ConfigError


def test_words_without_its_flags_stay_as_they_are() -> None:
    words = ["--agent", "DQN-v0", "--run_dir", "here"]
    assert modern(words, {"ip_head": "head:1"}) == (words, [])


def test_the_trainers_own_line() -> None:
    line = "--run PPO --name-env CartPole-v1 --num-cpus 35 --num-gpus 0"
    words, notes = modern(line.split(), {})
    now = "--agent PPO-v0 --env CartPole-v1 --workflow elastic --n_actors 34 --learner_gpus 0"
    assert words == now.split()
    assert len(notes) == 1 and "34 actors" in notes[0]


def test_no_cpus_are_one_actor_as_they_were_there() -> None:
    assert modern(["--num-cpus", "0"], {})[0] == ["--workflow", "elastic", "--n_actors", "1"]


def test_local_mode_is_one_process() -> None:
    words, notes = modern(["--run", "DQN", "--local-mode"], {})
    assert words == ["--agent", "DQN-v0", "--workflow", "elastic", "--serial"]
    assert "--serial" in notes[0]


def test_the_password_is_not_needed_and_the_head_is_the_address() -> None:
    given = ["--redis-password", "abc", "--run", "DQN", "--workflow=elastic"]
    words, notes = modern(given, {"ip_head": "10.0.0.1:6379"})
    assert words[-2:] == ["--workflow.address", "10.0.0.1:6379"]
    assert "abc" not in " ".join([*words, *notes])
    assert len(notes) == 2
    assert "--workflow.address" not in modern(given, {})[0]


def test_what_the_user_says_in_todays_words_wins() -> None:
    words, _ = modern(["--num-cpus", "8", "--n_actors", "3", "--workflow", "async"], {})
    assert words == ["--n_actors", "3", "--workflow", "async"]


def test_a_wrong_count_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_cpus is a whole number of at least 0, not 'all'"):
        modern(["--num-cpus", "all"], {})
