"""From a command line and a study file to a checked study."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from support.docs import ROOT, snippets
from support.sweep import FLAGS, config

from exarl.cli.sweep import understand
from exarl.errors import ConfigError
from exarl.sweep.space import Choices, Range
from exarl.sweep.spec import read_study
from exarl.sweep.study import find_study, store_study


def test_a_study_comes_back_from_its_file(tmp_path: Path) -> None:
    study = config({**FLAGS, "hidden": "[64,64],[32]"}, sampler="tpe", timeout=5.0)
    store_study(tmp_path / "s", study)
    assert read_study(tmp_path / "s" / "study.json") == study
    assert find_study(tmp_path / "s", study, {"trials": 9}).trials == 9


@pytest.mark.parametrize(
    ("flags", "options", "words"),
    [
        ({"learnin_rate": "1e-4:1e-2"}, {}, "did you mean 'learning_rate'"),
        ({"trails": "3"}, {}, "did you mean 'trials'"),
        ({"gamma": "0.9,1.5"}, {}, "gamma must be .* not 1.5"),
        ({"learning_rate": "-1:1"}, {}, "learning_rate must be"),
        ({"batch_sise": "3", "agent": "DQN-v0"}, {}, "did you mean 'batch_size'"),
        ({"agent": "PPO-v0,NoSuch-v0"}, {}, "NoSuch-v0"),
        ({"space.run_dir": "a,b"}, {}, "a sweep chooses run_dir itself"),
        ({"seed": "abc"}, {}, "seed is int, not 'abc'"),
        ({"seed": "1,2"}, {}, "a sweep chooses seed itself"),
        ({}, {"metric": "evaluation"}, "needs --eval_interval"),
        ({}, {"metric": "last_evaluation"}, "needs --eval_interval"),
        ({}, {"metric": "last_rewrad_mean"}, "did you mean 'last_reward_mean'"),
        ({}, {"metric": "info/energy_last"}, "needs --log_info"),
        ({"log_info": "energy"}, {"metric": "info/energy_last:least"}, "neither :min nor :max"),
        ({"process_per_env": "4"}, {"procs": 3}, "3 ranks cannot hold"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    flags: dict[str, str], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        config({**FLAGS, **flags}, **options)


def test_nothing_varied_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing is varied"):
        config({"agent": "PPO-v0", "gamma": "0.9"})


def test_lists_may_be_fixed_or_varied() -> None:
    fixed = config({**FLAGS, "hidden": "64,64"})
    assert fixed.train["hidden"] == "64,64"
    assert fixed.configuration({"learning_rate": 1e-3}).values["model"]["hidden"] == (64, 64)
    varied = config({**FLAGS, "hidden": "[64,64],[32]"})
    assert varied.space["hidden"] == Choices(("[64,64]", "[32]"))
    point = {"hidden": "[64,64]"}
    assert varied.configuration(point).values["model"]["hidden"] == (64, 64)
    forced = config({**FLAGS, "space.hidden": "64,32", "train.gamma": "0.95"})
    assert forced.space["hidden"] == Choices((64, 32))
    assert forced.train["gamma"] == "0.95"


def test_whole_parameters_give_whole_numbers() -> None:
    study = config({**FLAGS, "epochs": "2:20:log"})
    assert study.space["epochs"] == Range(2, 20, log=True, whole=True)


TOML = """\
[sweep]
trials = 7
sampler = "grid"
points = 3

[space]
learning_rate = "1e-4:1e-2:log"
gamma = [0.9, 0.99]

[train]
agent = "PPO-v0"
total_steps = 1000
hidden = [32, 32]
"""


def test_flags_win_over_the_study_file(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(TOML)
    words = ["--config", str(file), "--sampler", "tpe", "--gamma", "0.95", "--seeds=2"]
    command = understand([*words, "--study", str(tmp_path / "s")])
    study = command.config
    assert (study.trials, study.options.sampler, study.options.seeds) == (7, "tpe", 2)
    assert list(study.space) == ["learning_rate"]
    assert study.train == {
        "agent": "PPO-v0", "total_steps": "1000", "hidden": "[32, 32]", "gamma": "0.95"
    }  # fmt: skip
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[swep]\n", "did you mean 'sweep'"),
        ("[sweep]\ntrials = 0\n", "trials must be >= 1"),
        ("[sweep]\nsamplr = 'tpe'\n", "did you mean 'sampler'"),
        ("[space\n", "is not TOML"),
    ],
)
def test_a_bad_study_file_is_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        understand(["--config", str(file)])


def test_the_same_command_finds_the_same_folder() -> None:
    def place(*words: str) -> Path:
        return understand(["--agent", "PPO-v0", "--gamma", "0.9,0.99", *words]).path

    assert place() == place("--trials", "50", "--jobs", "3")
    assert place() != place("--total_steps", "70000")
    assert place() != place("--sampler", "random")


def test_another_study_in_the_folder_is_refused(tmp_path: Path) -> None:
    store_study(tmp_path, config())
    with pytest.raises(ConfigError, match="contains a study with seeds 1, not 3"):
        find_study(tmp_path, config(seeds=3))
    with pytest.raises(ConfigError, match="4 trials already"):
        find_study(tmp_path, config(), {"trials": 3})
    with pytest.raises(ConfigError, match="cannot be changed"):
        understand(["--study", str(tmp_path), "--sampler", "gp"])


def test_the_commands_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there for a study of three ranks a training are given one."""
    page = ROOT / "docs/sweeps.md"
    monkeypatch.chdir(tmp_path)
    (block,) = snippets(page, "toml")
    Path("study.toml").write_text(block.code)
    store_study(Path("results_dir/ppo"), understand(["--config", "study.toml"]).config)
    lines = [line for block in snippets(page, "sh") for line in block.code.splitlines()]
    for line in lines:
        words = shlex.split(line, comments=True)
        command = understand(words[words.index("sweep") + 1 :])
        assert list(command.config.space) == ["learning_rate", "gamma"]
    assert len(lines) >= 5
