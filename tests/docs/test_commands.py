"""Every command that the documentation shows is run, or understood as far as it goes without running.

What trains for long is resolved to its configuration and its ranks; what is quick is run, on a small
run that stands for RUN. ``support.docs`` says how a block is marked that needs what a test has not.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from support.docs import ALL_PAGES, ELSEWHERE, ROOT, Snippet, snippets

from exarl.cli import words as line
from exarl.cli.aliases import modern
from exarl.cli.check import env_parameters
from exarl.cli.commands import COMMANDS
from exarl.cli.main import main
from exarl.cli.search import components, help_text, options
from exarl.cli.train import check_ranks
from exarl.errors import ConfigError
from exarl.records.directory import open_run
from exarl.run.configure import check_same_run, configure, configure_again

SHORT = ["--total_steps", "64", "--hidden", "4", "--eval_interval", "32", "--eval_episodes", "1"]
RUNS = ("RUN", "booster", "covid", "results_dir/exarl-4711", "cartpole/one")
"""Names under which the pages speak of a run."""

COMPILING = ("cc ", "gfortran ")

REFUSAL = "exarl: "
"""How the answer to a mistake begins."""

MODULE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

gymnasium.register("MySolver-v0", entry_point=CartPoleEnv, max_episode_steps=100)

def PID(observation):
    return int(observation[2] > 0)
"""
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    done = subprocess.run(
        [sys.executable, "-m", "exarl", "train", *SHORT, "--run_dir", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with what the pages take for granted in it; the present one."""
    work = tmp_path / "work"
    for name in RUNS:
        shutil.copytree(trained, work / name)
    shutil.copytree(trained, work / "FOLDER" / "run")
    (work / "my_module.py").write_text(MODULE)
    for name in ("my.json", "best.json"):
        (work / name).write_text("{}")
    for name in ("client", "external", "c_environment", "lammps", "multi_agent"):
        shutil.copytree(ROOT / "examples" / name, work / "examples" / name)
    (work / "src").symlink_to(ROOT / "src")  # as examples/c_environment sees it from where it is
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.syspath_prepend(str(work))
    monkeypatch.chdir(work)
    gymnasium.register("MyEnv-v0", entry_point="my_module:CartPoleEnv")
    yield work
    for id in ("MyEnv-v0", "MySolver-v0", "ExaFooEnv-v0"):
        gymnasium.registry.pop(id, None)
    for name in ("my_module", "foo"):
        sys.modules.pop(name, None)


def blocks(page: Path) -> list[Snippet]:
    return [block for language in ("sh", "") for block in snippets(page, language)]


@pytest.mark.parametrize(
    "page", [p for p in ALL_PAGES if p.parent.name != "tutorials"  # test_tutorials.py runs these
             and any(block.commands() for block in blocks(p))],
    ids=lambda p: str(p.relative_to(ROOT)),
)  # fmt: skip
def test_every_command_of_a_page(page: Path, place: Path, capfd: Any) -> None:
    write_files(page, place)
    if page.is_relative_to(ROOT / "examples"):
        os.chdir(place / page.parent.relative_to(ROOT))
    for block in blocks(page):
        if block.mark in ELSEWHERE:
            continue
        for text in block.commands():
            if page.name == "external.md" and text.startswith(COMPILING):
                continue  # tests/docs/test_compile_lines.py runs these
            where = f"{page.relative_to(ROOT)}:{block.line}: {text}"
            try:
                follow(shlex.split(text.replace("$seed", "0"), comments=True), block)
            except (ConfigError, subprocess.CalledProcessError, OSError) as error:
                pytest.fail(f"{where}\n{error}")
            capfd.readouterr()


def test_messages_are_those_of_the_pages(place: Path, capfd: Any) -> None:
    """Where a page shows what a mistake is answered with, that is the answer."""
    shown = 0
    for page in ALL_PAGES:
        found = re.findall(
            rf"^\$ exarl (.+)\n({REFUSAL}.+)$", page.read_text(encoding="utf-8"), re.M
        )
        for command, answer in found:
            assert main(shlex.split(command)) == 2
            assert capfd.readouterr().err.strip() == answer
            shown += 1
    assert shown > 3


def test_commands_in_the_text_have_options_that_exist(place: Path) -> None:
    for page in ALL_PAGES:
        for text in re.findall(r"`exarl ([a-z][^`]*)`", page.read_text(encoding="utf-8")):
            words = shlex.split(text)
            assert words[0] in COMMANDS, f"{page.name}: {text}"
            if words[0] != "slurm":
                known_options(words, f"{page.name}: {text}")


def known_options(words: list[str], where: str) -> None:
    """Whether the options are those of the command, or parameters of some component."""
    text = help_text(words[0])
    listed = {option.name for option in options(text)} | {"--help"}
    if "--key" in text.splitlines()[0]:
        listed |= {f"--{name}" for part in components() for name in part.schema}
    plain = {name.replace("-", "_") for name in listed}
    names = [word.partition("=")[0].replace("-", "_") for word in words if word.startswith("--")]
    assert set(names) <= plain, where


# -- one command -------------------------------------------------------------------------------------


def follow(words: list[str], block: Snippet) -> None:
    """Run the command, or look whether it would run."""
    words = [word for word in words if word != "..."]
    if words[0] == "srun":
        words = words[1:]
    if words[0] == "mpiexec":
        ranks, words = words[2], words[3:]
        words += ["--procs", ranks] if words[:2] == ["exarl", "train"] else []
    program = words[0]
    if program == "exarl":
        exarl(words[1:], block)
    elif program in LOOKED_AT:
        LOOKED_AT[program](words[1:])
    else:
        assert program in ("cc", "mpicc", "gfortran", "printf", "grep"), f"what is '{program}'?"
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here")
        subprocess.run(shlex_again(words), shell=True, check=True)


def exarl(words: list[str], block: Snippet) -> None:
    name, rest = words[0], list(words[1:])
    if line.wants_help(words):
        assert main(words) == 0
    elif name == "train" and "--prior_data" in words:  # which an earlier line would have made
        known_options(words, name)
    elif name == "train" and block.language == "" and not re.search(REFUSAL, block.code):
        assert main([*words, *SHORT]) == 0  # later lines look at what it left
    elif name == "train":
        if not re.search(REFUSAL, block.code):  # these are for test_messages_are_those_of_the_pages
            train(rest)
    elif name == "resume":
        run = open_run(rest[0])
        check_same_run(run, configure_again(run, rest[1:]))
    elif name == "bench":
        line.take(rest, "seconds")
        line.take_flag(rest, "json")
        train(rest)
    elif name == "sweep":
        sweep(rest)
    elif name == "serve-env" and "--make-keys" not in rest:
        for option in ("bind", "keys"):
            line.take(rest, option)
        env_parameters(rest[0], rest[1:])
    elif name in ("surrogate", "data", "actor", "relay", "dashboard"):  # -- begins another program
        known_options(words[: words.index("--")] if "--" in words else words, name)
    elif name == "slurm":
        command = [word for word in words if word != "--submit"]
        command += ["--env", "CartPole-v1"] if command[-1] == "train" else []
        if "sweep" in command:  # whose study is somewhere else
            known_options(command[: command.index("--")], "slurm")
        else:
            assert main(command) == 0
    elif name == "check-env" and "--command" in rest and not Path("cartpole").is_file():
        env_parameters(rest[0], rest[1:])
    else:
        quick = {"check-env": ["--seconds", "2"], "evaluate": ["--episodes", "2"]}
        assert main([*words, *quick.get(name, [])]) == 0


def train(words: list[str]) -> None:
    """Everything that ``exarl train`` does before it builds or starts anything."""
    words, _ = modern(words, {})
    config, procs = line.take(words, "config"), line.take_count(words, "procs", 1)
    line.take_flag(words, "serial")
    configuration = configure(config, words)
    assert procs is not None
    try:
        check_ranks(configuration, procs)
    except ConfigError as error:
        if "pip install" not in str(error):  # an extra that is not installed here
            raise


def sweep(words: list[str]) -> None:
    pytest.importorskip("optuna")
    from exarl.cli.sweep import understand
    from exarl.sweep.study import store_study

    if "--config" in words and "--study" in words:
        found = understand(words)
        store_study(found.path, found.config)
    elif "--study" not in words or Path(words[words.index("--study") + 1], "study.json").is_file():
        understand(words)


def script(words: list[str]) -> None:
    """A Python program is there and can be compiled; flags of a run are understood."""
    path = next(p for p in (Path(words[0]), ROOT / words[0]) if p.is_file())
    compile(path.read_text(), str(path), "exec")
    if path.name == "driver.py":
        configure(None, words[1:])


def pip(words: list[str]) -> None:
    for names in re.findall(r"\[(.+?)\]", " ".join(words)):
        assert set(names.split(",")) <= EXTRAS.keys()


def make(words: list[str]) -> None:
    assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M)


def taskset(words: list[str]) -> None:
    script(words[3:])


def cd(words: list[str]) -> None:
    os.chdir(words[0])


LOOKED_AT: dict[str, Callable[[list[str]], None]] = {
    "python": script,
    "pip": pip,
    "make": make,
    "taskset": taskset,
    "cd": cd,
    "pytest": lambda words: None,  # tests/unit/cli/test_new.py runs those of a new package
}


def shlex_again(words: list[str]) -> str:
    """The command for a shell, with patterns and redirections still at work."""
    plain = [word if re.fullmatch(r"[\w./*>$()-]+", word) else shlex.quote(word) for word in words]
    return " ".join(plain)


def write_files(page: Path, folder: Path) -> None:
    """Modules and studies that the page shows."""
    for block in snippets(page, "python"):
        if block.file is not None:
            (folder / block.file).write_text(block.code)
    for block in snippets(page, "toml"):
        (folder / "study.toml").write_text(block.code)
