"""The commands: the one table behind the command line, its help and its completion."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """What a command is for, one example, and the function that runs it (imported when called)."""

    about: str
    example: str
    entry: str  # "module:function" in exarl.cli
    on_ranks: bool = False  # every rank of an MPI job runs it; the others run once, on the first

    def __call__(self, words: list[str]) -> int:
        """Run it with the words that follow its name; its exit code."""
        module, _, function = self.entry.partition(":")
        run: Callable[[list[str]], int] = getattr(
            importlib.import_module(f"exarl.cli.{module}"), function
        )
        return run(words)


COMMANDS: dict[str, Command] = {
    "train": Command(
        "train an agent",
        "exarl train --env CartPole-v1 --total_steps 60000",
        "train:train",
        on_ranks=True,
    ),
    "resume": Command(
        "continue a run from its directory",
        "exarl resume RUN [--total_steps 120000]",
        "train:resume",
        on_ranks=True,
    ),
    "sweep": Command(
        "which parameters are best?",
        "exarl sweep --learning_rate 1e-4:1e-2:log ...",
        "sweep:sweep",
        on_ranks=True,
    ),
    "evaluate": Command(
        "play a run's policy greedily",
        "exarl evaluate RUN [--episodes 20] [--video F.gif]",
        "evaluate:evaluate",
    ),
    "report": Command(
        "runs on one page, with curves",
        "exarl report RUN... [--out report.html]",
        "report:report",
    ),
    "runs": Command(
        "the runs of a folder and their states",
        "exarl runs [FOLDER] [--json]",
        "runs:runs",
    ),
    "watch": Command(
        "how a run is doing, here or away",
        "exarl watch RUN [--once]",
        "watch:watch",
    ),
    "export": Command(
        "a run's policy for other programs",
        "exarl export RUN --format npz|onnx|c",
        "export:export",
    ),
    "surrogate": Command(
        "a learnt plant for the Booster",
        "exarl surrogate --data BOOSTR.csv --out FILE.npz",
        "surrogate:surrogate",
    ),
    "list": Command(
        "agents, envs, workflows, models",
        "exarl list agents",
        "describe:list_ids",
    ),
    "describe": Command(
        "the parameters of a component",
        "exarl describe DQN-v0",
        "describe:describe",
    ),
    "bench": Command(
        "how fast is it, and why?",
        "exarl bench --env CartPole-v1 [--procs 4]",
        "bench:bench",
        on_ranks=True,
    ),
    "check-env": Command(
        "is this environment fit to train?",
        "exarl check-env CartPole-v1",
        "check:check_env",
    ),
    "serve-env": Command(
        "an environment for other programs",
        "exarl serve-env CartPole-v1 [--bind tcp://...]",
        "serve:serve_env",
        on_ranks=True,
    ),
    "slurm": Command(
        "a batch script for a cluster",
        "exarl slurm --nodes 2 --time 1:00:00 -- train ...",
        "slurm:slurm",
    ),
    "new": Command(
        "a package of one's own, to change",
        "exarl new env my_env",
        "new:new",
    ),
    "help": Command(
        "search commands and parameters",
        "exarl help WORD",
        "search:help_on",
    ),
    "completion": Command(
        "completion for your shell",
        "exarl completion bash|zsh|fish",
        "completion:completion",
    ),
}


def usage() -> str:
    """What ``exarl --help`` says."""
    rows = "".join(
        f"  {name:<12}{command.about:<36}{command.example}\n" for name, command in COMMANDS.items()
    )
    return (
        "EXARL: reinforcement learning whose environment is a simulation or an experiment.\n\n"
        f"usage: exarl COMMAND [--key value ...]\n\n{rows}\n"
        "'exarl COMMAND --help' says more. Under mpiexec or srun train, resume, sweep and bench use\n"
        "all ranks ('--procs N' starts mpiexec for you), serve-env runs on each; the others run once,\n"
        "on the first.\n"
    )
