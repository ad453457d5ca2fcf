"""``exarl help`` and ``exarl completion``, which know what the command line knows."""

from __future__ import annotations

import ast
import importlib
import inspect
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exarl import registry
from exarl.cli.commands import COMMANDS
from exarl.cli.search import help_text, options
from exarl.config import LearnerConfig, schema_of

HIDDEN = {"bench": {"serial"}}
"""Options that a command takes only to refuse them."""


# -- help --------------------------------------------------------------------------------------------


def test_a_command_has_the_same_help_either_way(exarl: Any) -> None:
    for command in COMMANDS:
        assert exarl("help", command).out == exarl(command, "--help").out


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("isolation", ["--env_isolation (exarl train)", "its own process"]),
        ("learning_rate", ["--learning_rate (A2C-v0", "sweep"]),
        ("--lr", ["--learning_rate"]),
        ("LAMBDA", ["--gae_lambda"]),
        ("tetris", ["ExaTetris-v0", "exarl describe ExaTetris-v0"]),
        ("pendulum", ["Pendulum-v1 (env)"]),
        ("onnx", ["export:", "--format onnx"]),
        ("replay device", ["--replay_device"]),
    ],
)
def test_a_word_is_looked_for_everywhere(exarl: Any, word: str, parts: list[str]) -> None:
    answer = exarl("help", *word.split())
    assert answer.code == 0
    for part in parts:
        assert part in answer.out


def test_a_word_that_is_nowhere_is_one_line(exarl: Any) -> None:
    exarl("help", "gama").refused("'gama'", "did you mean 'gamma'?")
    exarl("help", "qqqqq").refused("exarl help")


def test_help_on_training_is_short_and_has_every_parameter_of_the_run(exarl: Any) -> None:
    text = exarl("train", "--help").out
    for name in schema_of(LearnerConfig):
        assert f"  --{name} " in text
    assert "when to stop" in text
    assert "--epsilon_min" not in text
    assert len(text.splitlines()) < 130


def test_help_on_training_shows_the_chosen_components(exarl: Any) -> None:
    text = exarl("train", "--help", "--agent", "SAC-v0", "--env", "ExaCH-v0").out
    for name in schema_of(registry.agents.load("SAC-v0").Config):
        assert f"  --{name} " in text
    assert "  --boundary periodic|neumann\n" in text
    assert "--total_steps" not in text
    exarl("train", "--help", "--agent", "sac").refused("did you mean 'SAC-v0'?")


def test_every_option_that_a_command_takes_is_in_its_help() -> None:
    """What completion knows is what the help lists, so the help must list all of it."""
    for name, command in COMMANDS.items():
        module = importlib.import_module(f"exarl.cli.{command.entry.partition(':')[0]}")
        function = getattr(module, command.entry.partition(":")[2])
        tree = ast.parse(inspect.getsource(function))
        taken = {
            call.args[1].value.replace("_", "-")
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("line.take")
            if len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
            if ast.unparse(call.func) != "line.take_path"
        }
        listed = {
            option.name.removeprefix("--").replace("_", "-") for option in options(help_text(name))
        }
        assert taken - HIDDEN.get(name, set()) <= listed, name


# -- completion --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "exarl.bash"
    command = [sys.executable, "-m", "exarl", "completion", "bash"]
    path.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return path


def completed(script: Path, *words: str) -> set[str]:
    """What bash would offer for the last of ``words``."""
    line = " ".join(f"'{word}'" for word in ("exarl", *words))
    program = (
        f". {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _exarl;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tr"], {"train"}),
        ([""], set(COMMANDS)),
        (["train", "--agent", "P"], {"PPO-v0", "PQN-v0"}),
        (["train", "--total_s"], {"--total_steps"}),
        (["train", "--epsilon_m"], {"--epsilon_min"}),
        (["train", "--env_isolation", ""], {"inline", "process"}),
        (["resume", "--proc"], {"--procs", "--process_per_env"}),
        (["evaluate", "run", "--v"], {"--video"}),
        (["evaluate", "run", "--total"], set()),
        (["check-env", "ExaCH"], {"ExaCH-v0", "ExaCH3D-v0"}),
        (["check-env", "ExaCH-v0", "--bound"], {"--boundary"}),
        (["check-env", "ExaCH-v0", "--total"], set()),
        (["describe", "DQ"], {"DQN-v0"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["slurm", "--part"], {"--partition"}),
        (["evaluate", ""], set()),
    ],
)
def test_bash_offers(script: Path, words: list[str], offered: set[str]) -> None:
    assert completed(script, *words) == offered


def test_the_other_shells_know_the_same(exarl: Any) -> None:
    fish, zsh = exarl("completion", "fish").out, exarl("completion", "zsh").out
    assert "bashcompinit" in zsh
    for command in COMMANDS:
        assert f"-a {command} -d " in fish
        assert command in zsh
    for name in schema_of(LearnerConfig):
        assert f"-l {name}" in fish
    exarl("completion", "tcsh").refused("bash, zsh, fish")


def test_help_and_completion_import_no_jax() -> None:
    code = (
        "import sys\nfrom exarl.cli.main import main\n"
        "main(['completion', 'bash']); main(['help', 'noise'])\n"
        "heavy = {'jax', 'optax', 'matplotlib', 'ray', 'optuna'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
