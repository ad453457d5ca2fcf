"""A run directory from elsewhere runs nothing that it names, unless it is trusted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exarl.cli import main as cli
from exarl.errors import ConfigError
from exarl.run.experiment import ExaLearner

ENV = """\
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from pathlib import Path
Path(__file__).with_name("ran").touch()
gymnasium.register("Strange-v0", CartPoleEnv, max_episode_steps=50)
"""
RAN = "import os\nopen(os.environ['SHADOWED'], 'a').write(__name__ + ' ')\n"
ENTRY = "from exarl.cli.main import entry; entry()"
COMMANDS = {
    "evaluate": ("evaluate", "run", "--episodes", "1"),
    "resume": ("resume", "run", "--total_steps", "400"),
    "export": ("export", "run", "--format", "npz", "--output", "policy.npz"),
    "slurm": ("slurm", "--", "resume", "run", "--total_steps", "400"),
}
Exarl = Callable[..., int]


@pytest.fixture
def exarl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exarl:
    """Commands of a user in a folder with a run of a module's environment and the module's code."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"strange_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(ENV)
    words = ("--agent", "DQN-v0", "--hidden", "[4]", "--total_steps", "128")
    call = lambda *words: cli.main([str(word) for word in words])  # noqa: E731
    assert call("train", "--env", f"{name}:Strange-v0", *words, "--run_dir", "run") == 0
    forget(tmp_path)
    return call


def forget(folder: Path) -> None:
    """As if this process had just begun."""
    (folder / "ran").unlink(missing_ok=True)
    sys.modules.pop(f"strange_{folder.name}", None)
    sys.path[:] = [place for place in sys.path if place != str(folder)]


def another_user(folder: Path) -> None:
    """The run is now in the hands of a user with another key."""
    (folder / "home/.exarl/key").unlink()


def moved(folder: Path) -> None:
    shutil.copytree(folder / "run", folder / "copy")
    shutil.rmtree(folder / "run")
    (folder / "copy").rename(folder / "other")
    (folder / "run").symlink_to(folder / "other")


def changed(folder: Path) -> None:
    file = folder / "run/config.json"
    config = json.loads(file.read_text())
    config["agent"]["gamma"] = 0.5
    file.write_text(json.dumps(config))


def unsealed(folder: Path) -> None:
    file = folder / "run/config.json"
    config = json.loads(file.read_text())
    del config["seal"]
    file.write_text(json.dumps(config))


@pytest.mark.parametrize("command", COMMANDS)
def test_an_own_run_asks_for_nothing(exarl: Exarl, tmp_path: Path, command: str) -> None:
    assert exarl(*COMMANDS[command]) == 0
    needs_environment = command != "export"
    assert (tmp_path / "ran").exists() == needs_environment


@pytest.mark.parametrize(
    "stranger",
    [
        changed,
        *(pytest.param(how, marks=pytest.mark.slow) for how in (another_user, moved, unsealed)),
    ],
)
def test_a_strangers_run_is_refused_before_it_runs_anything(
    exarl: Exarl, tmp_path: Path, stranger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger(tmp_path)
    capsys.readouterr()
    for words in COMMANDS.values():
        assert exarl(*words) == ConfigError.exit_code
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "--trust" in told
        assert f"env 'strange_{tmp_path.name}:Strange-v0'" in told
    with pytest.raises(ConfigError, match="--trust"):
        ExaLearner.resume("run")
    assert exarl("watch", "run", "--once") == 0
    assert exarl("report", "run") == 0
    assert not (tmp_path / "ran").exists()
    assert str(tmp_path) not in sys.path, "not even the folder may be looked into"


def test_trust_runs_it_and_resuming_makes_it_ones_own(exarl: Exarl, tmp_path: Path) -> None:
    another_user(tmp_path)
    assert exarl(*COMMANDS["evaluate"], "--trust") == 0
    assert (tmp_path / "ran").exists()
    assert exarl(*COMMANDS["evaluate"]) == 2, "evaluating leaves a run as it is"
    assert exarl(*COMMANDS["export"], "--trust") == 0
    assert exarl(*COMMANDS["resume"], "--trust") == 0
    assert exarl(*COMMANDS["evaluate"]) == 0


def test_changed_stops_and_unchanged_ones(exarl: Exarl, tmp_path: Path) -> None:
    before = (tmp_path / "run/config.json").read_bytes()
    assert exarl("resume", "run", "--serial") == 0  # finished
    assert exarl("train", "--config", "missing.json", "--run_dir", "run") == 2
    assert (tmp_path / "run/config.json").read_bytes() == before
    assert exarl("resume", "run", "--total_steps", 256, "--log_level", "error") == 0
    (tmp_path / "home/.exarl/key").chmod(0o000)  # a node that cannot read the user's home
    assert exarl(*COMMANDS["evaluate"]) == (0 if os.access("home/.exarl/key", os.R_OK) else 2)
    (tmp_path / "home/.exarl/key").chmod(0o600)
    assert exarl(*COMMANDS["evaluate"]) == 0


def test_what_is_packaged_goes_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--agent", "Random-v0", "--total_steps", "64", "--run_dir", "run"]
    assert cli.main(["train", *words]) == 0
    assert "seal" not in json.loads((tmp_path / "run/config.json").read_text())
    moved(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "not there"))
    assert cli.main(["resume", "run", "--total_steps", "128"]) == 0
    assert cli.main(["evaluate", "run", "--episodes", "1"]) == 0


def test_a_program_is_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--agent", "Random-v0", "--total_steps", "32", "--run_dir", str(tmp_path / "run")]
    assert cli.main(["train", *words]) == 0
    file = tmp_path / "run/config.json"
    config = json.loads(file.read_text())
    config["learner"]["env"] = "ExaExternal-v0"
    config["env"] = {"command": f"touch {tmp_path}/ran"}
    file.write_text(json.dumps(config))
    capsys.readouterr()
    assert cli.main(["evaluate", str(tmp_path / "run")]) == 2
    assert f"command 'touch {tmp_path}/ran'" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_a_strangers_study_is_refused(exarl: Exarl, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = ("--env", f"strange_{tmp_path.name}:Strange-v0", "--agent", "Random-v0", "--study", "s")
    words += ("--total_steps", "64", "--seed", "1", "--seeds", "1", "--executor", "slurm")
    assert exarl("sweep", *words, "--block_steps", "8,16", "--sampler", "grid") == 0
    forget(tmp_path)
    assert exarl("sweep", "--study", "s", "--executor", "slurm") == 0, "one's own"
    forget(tmp_path)
    another_user(tmp_path)
    assert exarl("sweep", "--study", "s", "--executor", "slurm") == 2
    assert exarl("sweep", "--study", "s", "--report") == 2
    assert not (tmp_path / "ran").exists()
    assert exarl("sweep", "--study", "s", "--executor", "slurm", "--trust") == 0
    assert exarl("sweep", "--study", "s", "--executor", "slurm") == 0, "now it is one's own"


@pytest.mark.parametrize(
    "words",
    [[], ["--env_isolation", "process"], pytest.param(["--procs", "2"], marks=pytest.mark.slow)],
)
def test_files_where_one_works_take_the_place_of_no_module(
    tmp_path: Path, words: list[str]
) -> None:
    for name in ("json", "numpy", "typing", "gymnasium", "jax", "colorama", "sitecustomize", "re"):
        (tmp_path / f"{name}.py").write_text(RAN)
    about = tmp_path / "theirs.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[gymnasium.envs]\n__root__ = colorama:x\n")
    small = ["--agent", "Random-v0", "--total_steps", "64", "--block_steps", "8"]
    done = subprocess.run(
        [sys.executable, "-P", "-c", ENTRY, "train", *small, *words],
        cwd=tmp_path,
        env={**os.environ, "SHADOWED": str(tmp_path / "shadowed")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "shadowed").exists()
