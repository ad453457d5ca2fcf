"""The commands: the one table behind the command line, its help and its completion."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

from exarl.cli import words as line


@dataclass(frozen=True)
class Command:
    """A command's summary, an example, and the function that runs it (imported when called)."""

    about: str
    example: str
    entry: str  # "module:function" in exarl.cli
    on_ranks: bool = False  # every rank of an MPI job runs it; other commands run on the first only
    help: str = (
        "HELP"  # in the same module: the help text, or a function of the words that returns it
    )

    def __call__(self, words: list[str]) -> int:
        """Run the command with the words that follow its name, and return its exit code.

        Words after ``--`` belong to another command, so ``--help`` among them is not this one's.
        """
        module_name, _, function = self.entry.partition(":")
        module = importlib.import_module(f"exarl.cli.{module_name}")
        own = words[: words.index("--")] if "--" in words else words
        if line.wants_help(own):
            text: str | Callable[[list[str]], str] = getattr(module, self.help)
            sys.stdout.write(text if isinstance(text, str) else text(own))
            return 0
        run: Callable[[list[str]], int] = getattr(module, function)
        return run(words)


COMMANDS: dict[str, Command] = {
    "train": Command(
        "train an agent",
        "exarl train --env CartPole-v1 --total_steps 60000",
        "train:train",
        on_ranks=True,
        help="train_help",
    ),
    "resume": Command(
        "continue a run from its directory",
        "exarl resume RUN [--total_steps 120000]",
        "train:resume",
        on_ranks=True,
        help="RESUME_HELP",
    ),
    "sweep": Command(
        "find the best parameters",
        "exarl sweep --learning_rate 1e-4:1e-2:log ...",
        "sweep:sweep",
        on_ranks=True,
        help="sweep_help",
    ),
    "baseline": Command(
        "what plain methods reach for a budget",
        "exarl baseline --env E --method cma-es --budget N",
        "baseline:baseline",
    ),
    "evaluate": Command(
        "evaluate policies of runs and others",
        "exarl evaluate RUN [--episodes 20] [--video F.gif]",
        "evaluate:evaluate",
        on_ranks=True,
    ),
    "report": Command(
        "write an HTML report on runs",
        "exarl report RUN... [--out report.html]",
        "report:report",
    ),
    "runs": Command(
        "list runs and their states",
        "exarl runs [FOLDER] [--json]",
        "runs:runs",
    ),
    "watch": Command(
        "follow a run from its files",
        "exarl watch RUN [--once]",
        "watch:watch",
    ),
    "dashboard": Command(
        "follow runs in the browser",
        "exarl dashboard [FOLDER] [--port N]",
        "dashboard:dashboard",
    ),
    "data": Command(
        "show, convert, import recorded episodes",
        "exarl data RUN|PATH [--to csv episodes.csv]",
        "data:data",
    ),
    "export": Command(
        "write a policy for other programs",
        "exarl export RUN --format npz|onnx|c",
        "export:export",
    ),
    "surrogate": Command(
        "learn an environment from data",
        "exarl surrogate RUN... --out FOLDER",
        "surrogate:surrogate",
    ),
    "list": Command(
        "list the available ids",
        "exarl list agents",
        "describe:list_ids",
        help="LIST_HELP",
    ),
    "describe": Command(
        "show the parameters of a component",
        "exarl describe DQN-v0",
        "describe:describe",
        help="DESCRIBE_HELP",
    ),
    "bench": Command(
        "measure speed and what limits it",
        "exarl bench --env CartPole-v1 [--procs 4]",
        "bench:bench",
        on_ranks=True,
    ),
    "plan": Command(
        "predict speed and choose a layout",
        "exarl plan --step_time 30s --procs 512",
        "plan:plan",
    ),
    "check-env": Command(
        "check that an environment works",
        "exarl check-env CartPole-v1",
        "check:check_env",
    ),
    "serve-env": Command(
        "serve an environment to clients",
        "exarl serve-env CartPole-v1 [--bind tcp://...]",
        "serve:serve_env",
        on_ranks=True,
    ),
    "relay": Command(
        "connect a program in C to EXARL",
        "exarl relay --to HOST:PORT -- ./reactor",
        "relay:relay",
    ),
    "include": Command(
        "what compilers need for the C header",
        "cc $(exarl include) -o solver solver.c",
        "include:include",
    ),
    "actor": Command(
        "join a run as a simulation",
        "exarl actor --join HOST:PORT --key-file FILE",
        "actor:actor",
        on_ranks=True,
    ),
    "slurm": Command(
        "write or submit a Slurm job",
        "exarl slurm --nodes 2 --time 1:00:00 -- train ...",
        "slurm:slurm",
    ),
    "new": Command(
        "create a package to start from",
        "exarl new env my_env",
        "new:new",
    ),
    "docs": Command(
        "where the documentation is",
        "exarl docs [--open]",
        "docs:docs",
    ),
    "help": Command(
        "search commands and parameters",
        "exarl help WORD",
        "search:help_on",
    ),
    "completion": Command(
        "print completion for your shell",
        "exarl completion bash|zsh|fish",
        "completion:completion",
    ),
}


def usage() -> str:
    """The text of ``exarl --help``."""
    rows = "".join(
        f"  {name:<12}{command.about:<36}{command.example}\n" for name, command in COMMANDS.items()
    )
    return (
        "EXARL: reinforcement learning whose environment is a simulation or an experiment.\n\n"
        f"usage: exarl COMMAND [--key value ...]\n\n{rows}\n"
        "'exarl COMMAND --help' explains a command. Under mpiexec or srun, train, resume and sweep\n"
        "use all ranks, serve-env and actor run on each; other commands run once, on the first rank.\n"
        "'--procs N' makes train, resume and bench start mpiexec for you.\n"
    )
