"""Commands, help, versions, exit codes, and how fast the first word comes."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import exarl as package
from exarl.cli import main as cli
from exarl.cli.commands import COMMANDS, Command
from exarl.comm.threads import THREADS, limit_threads
from exarl.config import LearnerConfig, schema_of
from exarl.errors import CheckpointError, ConfigError, ExarlError

OPTIONS = {
    "train": ["config", "procs", "max_restarts", "serial", *schema_of(LearnerConfig)],
    "resume": ["procs", "serial", "total_steps"],
    "evaluate": ["episodes", "seed", "checkpoint", "video"],
    "report": ["out", "group-by", "x"],
    "watch": ["interval", "once"],
    "export": ["format", "output", "best", "force"],
    "list": [],
    "describe": [],
    "bench": ["seconds", "json", "config", "procs"],
    "check-env": [],
    "serve-env": ["bind", "make-keys", "keys", "max-sessions", "idle", "max-message"],
    "new": ["dir"],
}
HELP_SECONDS = 0.4


# -- help and version --------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_command(exarl: Any, words: list[str]) -> None:
    answer = exarl(*words)
    assert (answer.code, answer.err) == (0, "")
    for command in cli.COMMANDS:
        assert re.search(rf"^  {command} ", answer.out, re.MULTILINE), command


def test_every_command_is_looked_at_here() -> None:
    assert set(OPTIONS) <= set(cli.COMMANDS)


@pytest.mark.parametrize("command", cli.COMMANDS)
@pytest.mark.parametrize("word", ["--help", "-h"])
def test_every_command_has_help_of_its_own(exarl: Any, command: str, word: str) -> None:
    answer = exarl(command, word)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"usage: exarl {command}")
    assert len(answer.out.split()) > 8
    for option in OPTIONS.get(command, []):
        assert re.search(rf"--{option}\b", answer.out), option
    assert max(map(len, answer.out.splitlines())) <= 105


def test_help_wins_over_mistakes(exarl: Any) -> None:
    assert exarl("train", "--nonsense", "--help").code == 0


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version(exarl: Any, word: str) -> None:
    assert exarl(word).out == f"exarl {package.__version__}\n"


def test_the_version_is_that_of_the_package() -> None:
    assert metadata.version("exarl") == package.__version__


# -- errors become exit codes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["tarin"], ["unknown command 'tarin'", "did you mean 'train'?"]),
        (["chek-env"], ["did you mean 'check-env'?"]),
        (["frobnicate"], ["unknown command", "train", "evaluate"]),
        (["train", "--agent", "DQN"], ["unknown agent 'DQN'", "did you mean 'DQN-v0'?"]),
        (["train", "--env", "CartPole"], ["did you mean 'CartPole-v1'?"]),
        (["train", "--epsilom", "1"], ["'epsilom'", "command line", "did you mean 'epsilon'?"]),
        (["describe", "DQN-v1"], ["there is no 'DQN-v1'", "did you mean 'DQN-v0'?"]),
        (["describe", "CartPole-v5"], ["did you mean 'CartPole-v1'?"]),
        (["list", "agent"], ["cannot list 'agent'", "did you mean 'agents'?"]),
        (["check-env", "Acrobot"], ["did you mean 'Acrobot-v1'?"]),
        (["check-env", "Pendulum-v1", "--h", "1"], ["unknown parameter 'h'"]),
        (["evaluate"], ["which policy? a run directory"]),
        (["resume", "nowhere"], ["no run directory at nowhere"]),
        (["evaluate", "nowhere"], ["no run directory at nowhere"]),
        (["train", "word"], ["unexpected 'word'"]),
        (["train", "--max_restarts", "2"], ["--max_restarts", "--procs"]),
        (["describe", "ExaTetris-v9"], ["'ExaTetris-v9'"]),
    ],
)
def test_a_mistake_is_one_line_with_advice(exarl: Any, words: list[str], parts: list[str]) -> None:
    exarl(*words).refused(*parts)


def test_nothing_is_written_by_a_mistake(exarl: Any) -> None:
    exarl("train", "--nonsense", "1").refused()
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("two\nlines"), 2),
        (CheckpointError("x"), 1),
        (ExarlError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_exit_codes(
    exarl: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(self: Command, words: list[str]) -> int:
        raise error

    monkeypatch.setattr(Command, "__call__", fail)
    answer = exarl("list")
    assert answer.code == code
    assert answer.err.startswith("exarl: ")
    assert answer.err.count("\n") == 1


def test_one_rank_of_a_job_speaks(exarl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "1")
    answer = exarl("train", "--nonsense")
    assert (answer.code, answer.err) == (2, "")
    monkeypatch.setenv("PMI_RANK", "0")
    exarl("train", "--nonsense").refused("nonsense")


def test_what_is_typed_cannot_steer_the_terminal(exarl: Any) -> None:
    answer = exarl("train", "--\x1b[2J\x07", "1")
    answer.refused("unknown parameter")
    assert answer.err.rstrip("\n").isprintable()


# -- threads -----------------------------------------------------------------------------------------


def test_a_rank_gets_its_share_of_the_cores() -> None:
    environ = {"MPI_LOCALNRANKS": "4"}
    limit_threads(environ, cores=16)
    assert environ["OMP_NUM_THREADS"] == environ["OPENBLAS_NUM_THREADS"] == "4"


@pytest.mark.parametrize("ranks", ["32", "0", "many", ""])
def test_a_share_is_at_least_one(ranks: str) -> None:
    environ = {"MPI_LOCALNRANKS": ranks}
    limit_threads(environ, cores=2)
    assert int(environ["MKL_NUM_THREADS"]) in (1, 2)


def test_the_users_word_on_threads_stands() -> None:
    environ = {"OMP_NUM_THREADS": "3"}
    limit_threads(environ, cores=16)
    assert {environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")} == {"3"}


def test_a_share_is_worked_out_again_by_a_rank_that_inherits_one() -> None:
    """What EXARL sets for one process is no word of the user's to the next."""
    environ: dict[str, str] = {}
    limit_threads(environ, cores=16)
    assert environ["OMP_NUM_THREADS"] == "16"
    environ["MPI_LOCALNRANKS"] = "4"
    limit_threads(environ, cores=16)
    assert {environ[name] for name in THREADS} == {"4"}
    environ |= {"OMP_NUM_THREADS": "2", "MPI_LOCALNRANKS": "8"}
    limit_threads(environ, cores=32)
    assert [environ[name] for name in THREADS] == ["2", "2", "2", "4"]


# -- one process of several ------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_a_command_without_ranks_runs_on_the_first(
    exarl: Any, monkeypatch: pytest.MonkeyPatch, rank: str, lines: int
) -> None:
    monkeypatch.setenv("PMI_RANK", rank)
    monkeypatch.setenv("PMI_SIZE", "2")
    answer = exarl("list", "workflows")
    assert answer.code == 0
    assert answer.out.count("fused") == lines
    if rank == "0":
        assert "PMI_RANK" not in os.environ  # or its MPI would wait for the others


# -- processes ---------------------------------------------------------------------------------------


def in_process(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The installed command, as a shell starts it."""
    command = [str(Path(sys.executable).parent / "exarl"), *words]
    variables = {**os.environ, **environ}
    return subprocess.run(command, capture_output=True, text=True, env=variables, check=False)


def test_help_comes_at_once() -> None:
    """The best of five: the machine may be busy, a slow import is slow every time."""
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        assert in_process("--help").returncode == 0
        taken.append(time.perf_counter() - started)
        if taken[-1] < HELP_SECONDS:
            return
    assert min(taken) < HELP_SECONDS


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from exarl.cli.main import main; code = main(['--help'])\n"
        "heavy = {'numpy', 'gymnasium', 'jax', 'mpi4py', 'msgspec', 'rich', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "exarl", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == in_process("--version").stdout


def test_a_mistake_ends_a_process_with_2(tmp_path: Path) -> None:
    done = in_process("train", "--nonsense", HOME=str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "exarl: unknown parameter 'nonsense' (command line)\n"


def test_an_environment_beside_one_is_found_by_its_module(tmp_path: Path) -> None:
    source = "from gymnasium.envs.classic_control.cartpole import CartPoleEnv\n"
    source += "import gymnasium\ngymnasium.register('Beside-v0', entry_point=CartPoleEnv)\n"
    (tmp_path / "my_simulation.py").write_text(source)
    command = [str(Path(sys.executable).parent / "exarl"), "describe", "my_simulation:Beside-v0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--sutton_barto_reward" in done.stdout


def test_a_closed_pager_is_no_error() -> None:
    command = f"{sys.executable} -m exarl train --help | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""


def test_every_command_has_a_function_and_a_help_text() -> None:
    for command in COMMANDS.values():
        module, _, function = command.entry.partition(":")
        found = importlib.import_module(f"exarl.cli.{module}")
        assert callable(getattr(found, function))
        text = getattr(found, command.help)
        assert (text if isinstance(text, str) else text([])).startswith("usage: exarl ")


def test_help_after_two_dashes_belongs_to_the_other_command(exarl: Any) -> None:
    exarl("slurm", "--", "train", "--help").refused("unknown parameter 'help'")
