"""Batch scripts for Slurm: a job as data, and its script. Pure functions of the job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from signal import SIGUSR1

from exarl.records.notes import END_FILE

STOPPED = 128 + SIGUSR1
"""Exit code of a run that has written its checkpoint because its time limit is near."""
TASK = "%a"
"""Stands for the task's number within a job array in a command, as in Slurm's file names."""


@dataclass(frozen=True)
class BatchJob:
    """The resources of a job and the command it runs.

    ``command`` is the words after ``exarl``. With ``run_base`` the run directory is that path followed
    by the job's number, which stays the same when the job is requeued. ``learners`` is the number of
    ranks of the first component in a heterogeneous job (``actor_nodes``).
    """

    command: tuple[str, ...]
    run_base: str | None = None
    nodes: int = 1
    ntasks_per_node: int = 1
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    time: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    job_name: str = "exarl"
    array: str | None = None
    launcher: str = "srun"
    mpi: str | None = None
    sbatch: tuple[str, ...] = ()
    prologue: str = ""
    env: str | None = None
    signal_before: int = 120
    requeue: bool = True
    actor_nodes: int | None = None
    actor_partition: str | None = None
    learner_cpus: int | None = None
    learners: int = 1

    @property
    def ranks(self) -> int:
        """The number of MPI ranks of the job."""
        if self.actor_nodes is None:
            return self.nodes * self.ntasks_per_node
        return self.learners + self.actor_nodes * self.ntasks_per_node


def script(batch: BatchJob) -> str:
    """The batch script, ready for ``sbatch``."""
    parts = [
        ["#!/bin/bash", *_header(batch)],
        _about(batch),
        _environment(batch),
        {"srun": _srun, "mpiexec": _mpiexec, "ray": _ray}[batch.launcher](batch),
        _ending(batch),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _header(batch: BatchJob) -> list[str]:
    # With srun, Slurm signals every rank itself; otherwise it signals this script, which passes it on.
    whom = "" if batch.launcher == "srun" else "B:"
    everywhere = {
        "time": batch.time,
        "account": batch.account,
        "qos": batch.qos,
        "signal": f"{whom}USR1@{batch.signal_before}",
    }
    tasks = {"ntasks-per-node": batch.ntasks_per_node, "cpus-per-task": batch.cpus_per_task}
    place = {"partition": batch.partition, "constraint": batch.constraint}
    first = {
        "job-name": batch.job_name,
        "array": batch.array,
        "open-mode": "append",  # a requeued job continues its log
        **everywhere,
        **place,
        "nodes": batch.nodes,
        **(tasks if batch.actor_nodes is None else _learner_tasks(batch)),
        "gpus-per-node": batch.gpus_per_node,
    }
    lines = _directives(first)
    lines.append("#SBATCH --requeue" if batch.requeue else "#SBATCH --no-requeue")
    if batch.launcher == "ray":
        lines.append(
            "#SBATCH --exclusive"
        )  # Ray finds and stops all other Ray processes on its nodes
    lines += [f"#SBATCH {words}" for words in batch.sbatch]
    if batch.actor_nodes is not None:
        partition = batch.actor_partition or batch.partition
        actors = {**everywhere, "partition": partition, "nodes": batch.actor_nodes, **tasks}
        lines += ["#SBATCH hetjob", *_directives(actors)]
    return lines


def _learner_tasks(batch: BatchJob) -> dict[str, object]:
    return {"ntasks": batch.learners, "cpus-per-task": batch.learner_cpus or batch.cpus_per_task}


def _directives(options: Mapping[str, object]) -> list[str]:
    return [f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None]


def _about(batch: BatchJob) -> list[str]:
    ends = f"# {batch.signal_before} s before the time limit the run writes a checkpoint and exits with"
    after = (
        " The job is then requeued, and the same command continues the run."
        if batch.requeue
        else ""
    )
    return [ends, f"# code {STOPPED}.{after}"]


def _environment(batch: BatchJob) -> list[str]:
    lines = batch.prologue.splitlines()
    if batch.env is not None:
        lines.append('source "$(conda info --base)/etc/profile.d/conda.sh"')
        lines.append(f"conda activate {shlex.quote(batch.env)}")
    if batch.launcher != "ray" and batch.actor_nodes is None:
        lines.append("export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}")
    if batch.run_base is not None:
        lines.append(f"run={shlex.quote(batch.run_base)}-{_number(batch)}")
    if batch.requeue or batch.launcher == "ray":
        lines.append(
            "notes=$(mktemp -d)  # this script runs on the node of rank 0 and of Ray's head"
        )
        lines.append("trap 'rm -rf \"$notes\"' EXIT")
    if batch.requeue:
        lines.append(f'export {END_FILE}="$notes/end"')
    return lines


def _number(batch: BatchJob) -> str:
    if batch.array is None:
        return "$SLURM_JOB_ID"
    return "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"


def _command(batch: BatchJob) -> str:
    place = "" if batch.run_base is None else ' --run_dir "$run"'
    return f"exarl {spelt(batch.command, batch.array is not None)}{place}"


def spelt(words: Sequence[str], array: bool) -> str:
    """Quote ``words`` for a shell; in a job array ``%a`` becomes the task's number."""
    if not array:
        return shlex.join(words)
    parts = [[shlex.quote(part) if part else "" for part in word.split(TASK)] for word in words]
    return " ".join('"$SLURM_ARRAY_TASK_ID"'.join(word) or "''" for word in parts)


def _srun(batch: BatchJob) -> list[str]:
    # One dead rank ends the step. Since Slurm 22, srun does not inherit --cpus-per-task.
    options = ["--kill-on-bad-exit=1", *([f"--mpi={batch.mpi}"] if batch.mpi else [])]
    if batch.actor_nodes is None:
        if batch.cpus_per_task is not None:
            options.append(f"--cpus-per-task={batch.cpus_per_task}")
        return [f"srun {' '.join(options)} \\", f"    {_command(batch)}", "code=$?"]
    actors = batch.cpus_per_task or 1
    cores = (batch.learner_cpus or actors, actors)
    components = [
        f"--het-group={group} --cpus-per-task={threads} \\\n"
        f"    env OMP_NUM_THREADS={threads} {_command(batch)}"
        for group, threads in enumerate(cores)
    ]
    return [
        "# One MPI world: the learners have the lowest ranks, so they are the first component.",
        f"srun {' '.join(options)} " + " \\\n  : ".join(components),
        "code=$?",
    ]


def _mpiexec(batch: BatchJob) -> list[str]:
    return [
        "trap 'kill -USR1 \"$job\"' USR1  # mpiexec passes it on to every rank",
        f"mpiexec -n {batch.ranks} \\",
        f"    {_command(batch)} &",
        *_waiting(),
    ]


def _waiting() -> list[str]:
    return [
        "job=$!",
        'wait "$job"',
        "code=$?",
        'while kill -0 "$job" 2> /dev/null; do  # a signal interrupts wait',
        '    wait "$job"',
        "    code=$?",
        "done",
    ]


_ADDRESS = """\
# This script runs on the first node. Find the address at which the other nodes reach it, a free port,
# and a password for this job.
last=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n 1)
read -r address RAY_AUTH_TOKEN < <(python - "$last" << 'END'
import secrets, socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    out.connect((sys.argv[1], 9))
    host = out.getsockname()[0]
with socket.socket() as free:
    free.bind((host, 0))
    print(f"{host}:{free.getsockname()[1]}", secrets.token_hex(32))
END
)
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=180  # seconds for all nodes to join
export RAY_gcs_rpc_server_reconnect_timeout_s=20  # a lost head node does not come back"""


# Ray's launcher may lose the exit code while it shuts the cluster down, so it is written to a file.
_RAY = """\
trap 'kill -USR1 "$(cat "$notes/pid")"' USR1
# Ray starts on every node, the command on the first one; Ray ends with the command.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --mpi=none --cpu-bind=none \\
    ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \\
    --num-cpus="${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}" \\
    --min-worker-port=0 --max-worker-port=0 -- \\
    env -u SLURM_PROCID -u SLURM_STEP_NUM_TASKS \\
    bash -c '"$@" & echo $! > "$0/pid"; wait $!; echo $? > "$0/code"' "$notes" \\"""


def _ray(batch: BatchJob) -> list[str]:
    return [
        *(_ADDRESS, _RAY, f"    {_command(batch)} &"),
        *_waiting(),
        '[ -s "$notes/code" ] && code=$(cat "$notes/code")',
    ]


def _ending(batch: BatchJob) -> list[str]:
    if not batch.requeue:
        return ['exit "$code"']
    return [
        'end=$(cat "$notes/end" 2> /dev/null)',
        f'if [ "$code" -eq {STOPPED} ] || [ "$end" = {SIGUSR1.name} ]; then',
        '    echo "exarl: the time limit is near; job $SLURM_JOB_ID is requeued to continue"',
        '    scontrol requeue "$SLURM_JOB_ID"',
        "fi",
        'exit "$code"',
    ]
