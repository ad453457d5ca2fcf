"""``exarl slurm``: what it refuses, and the scripts it writes.

The scripts are compared with the files in ``scripts``; ``tests/slurm`` runs them. After a wanted change
write a file again with ``exarl slurm --output FILE ...`` and read the difference.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.docs import ROOT, snippets

from exarl.cli import slurm

SCRIPTS = Path(__file__).with_name("scripts")
CART = ("--", "train", "--env", "CartPole-v1", "--total_steps", "60000")

CASES = {
    "one_core": CART,
    "nodes": (
        *(
            "--nodes",
            "3",
            "--ntasks-per-node",
            "12",
            "--cpus-per-task",
            "2",
            "--time",
            "1-00:00:00",
        ),
        *("--account", "physics", "--partition", "long", "--qos", "high", "--constraint", "a|b"),
        *("--sbatch", "--mail-type=END", "--sbatch=--mem=0", "--env", "my env"),
        *("--prologue", "module purge\nmodule load cuda", *CART),
    ),
    "mpiexec": ("--nodes", "2", "--launcher", "mpiexec", "--no-requeue", *CART),
    "heterogeneous": (
        *("--actor-nodes", "4", "--ntasks_per_node", "32", "--gpus-per-node", "1"),
        *("--partition", "gpu", "--actor-partition", "cpu", "--learner-cpus", "8"),
        *("--time", "04:00:00", "--job-name", "ch", *CART, "--workflow", "async"),
    ),
    "array": ("--array", "0-9%2", "--job-name", "seeds", *CART, "--seed", "%a"),
    "sweep": ("--array", "0-9", "--", "sweep", "--study", "my study", "--worker"),
    "ray": ("--nodes", "3", "--launcher", "ray", "--time", "20", "--", "sweep", "--study", "s"),
}


@pytest.fixture(autouse=True)
def mpich(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the MPI library is the wheel of MPICH."""
    monkeypatch.setattr(slurm, "wheel_mpi", lambda: "pmi2")


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_the_one_in_the_file_and_bash_can_read_it(exarl: Any, name: str) -> None:
    answer = exarl("slurm", *CASES[name])
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (SCRIPTS / f"{name}.sh").read_text(encoding="utf-8")
    subprocess.run(["bash", "-n"], input=answer.out, text=True, check=True)
    assert not [line for line in answer.out.splitlines() if line.strip().startswith("sleep")]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--nodes", "2"], ["the command is missing; it follows '--'", "exarl slurm --nodes 2"]),
        (["--"], ["the command is missing; it follows '--'"]),
        (["--", "trian"], ["cannot run 'trian'", "did you mean 'train'?"]),
        (["--node", "2", *CART], ["unexpected '--node'", "did you mean 'nodes'?"]),
        (["2", *CART], ["unexpected '2'"]),
        (["--nodes", "0", *CART], ["nodes is a whole number of at least 1, not '0'"]),
        (["--nodes", "two", *CART], ["not 'two'"]),
        (["--nodes", *CART], ["--nodes needs a value"]),
        (["--time", "soon", *CART], ["--time is 30 (minutes)", "not 'soon'"]),
        (["--time", "1:2:3:4", *CART], ["--time is"]),
        (["--time", "2", *CART], ["--time 2 is too short: the run stops 120 s before its end"]),
        (["--time", "00:01:30", *CART], ["is too short"]),
        (["--signal-before", "70000", *CART], ["at most 65535"]),
        (["--account", "a b", *CART], ["--account is one word"]),
        (["--job-name", "a/b", *CART], ["cannot contain '/'"]),
        (["--array", "some", *CART], ["--array is 0-9"]),
        (["--sbatch", "mem=0", *CART], ["--sbatch is an option of sbatch"]),
        (["--sbatch", "--x\n#SBATCH --y", *CART], ["--sbatch is an option of sbatch"]),
        (["--launcher", "mpirum", *CART], ["no launcher 'mpirum'"]),
        (["--launcher", "ray", *CART], ["workflow 'sync' does not run with --launcher ray"]),
        (["--learner-cpus", "2", *CART], ["need --actor-nodes"]),
        (["--actor-nodes", "2", "--array", "1-2", *CART], ["cannot be used with --array"]),
        (
            ["--actor-nodes", "2", "--launcher", "mpiexec", *CART],
            ["cannot be used with --launcher"],
        ),
        ([*CART, "--seed", "%a"], ["'%a' needs --array"]),
        ([*CART, "--gama", "0.9"], ["unknown parameter 'gama'", "did you mean 'gamma'?"]),
        ([*CART, "--procs", "2"], ["omit --procs"]),
        (["--nodes", "2", *CART, "--workflow", "fused"], ["runs on one rank, not on 2"]),
        (["--nodes", "3", *CART, "--process_per_env", "4"], ["3 ranks cannot hold", "5, 9, 13"]),
        (["--actor-nodes", "3", *CART, "--process_per_env", "2"], ["4 ranks", "3, 5, 7"]),
        (
            ["--array", "0-9", *CART, "--run_dir", "here"],
            ["all tasks of the array would share run_dir"],
        ),
        (["--", "resume", "nowhere"], ["nowhere"]),
        (["--", "resume"], ["which run directory?"]),
    ],
)
def test_a_mistake_is_one_line_before_anything_waits_in_a_queue(
    exarl: Any, words: list[str], parts: list[str]
) -> None:
    exarl("slurm", *words).refused(*parts)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        line.replace("--submit ", "")
        for block in snippets(ROOT / "docs/slurm.md", "sh")
        for line in block.code.replace("\\\n", "").splitlines()
        if line.startswith("exarl slurm") and "..." not in line and "elastic" not in line
    ],
)
def test_what_the_page_shows_is_accepted(exarl: Any, command: str) -> None:
    assert exarl(*shlex.split(command, comments=True)[1:]).code == 0


def test_words_of_a_command_arrive_as_they_were_given(exarl: Any) -> None:
    text = exarl("slurm", *CART, "--output_dir", "my runs/$HOME 'x'").out
    line = next(line for line in text.splitlines() if line.startswith("run="))
    shown = subprocess.run(
        ["bash", "-c", f'SLURM_JOB_ID=7; {line}; printf %s "$run"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "my runs/$HOME 'x'/exarl-7"


def test_the_prologue_may_be_a_file_and_the_script_goes_to_one(exarl: Any) -> None:
    Path("modules.sh").write_text("module load mpi\n")
    words = ("slurm", "--prologue", "modules.sh", "--output", "job.sh", *CART)
    assert exarl(*words).out == ""
    assert "\nmodule load mpi\n" in Path("job.sh").read_text()
    exarl(*words).refused("job.sh already exists")


def test_without_sbatch_nothing_is_submitted(exarl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    exarl("slurm", "--submit", *CART).refused("--submit needs sbatch")


def test_submitting_gives_the_script_to_sbatch_and_says_the_number(
    exarl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = Path("sbatch")
    stand_in.write_text("#!/bin/sh\necho \"$@\" > words; cat > script; echo '4711;cluster'\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path.cwd()}:/usr/bin:/bin")
    assert exarl("slurm", "--submit", *CASES["nodes"]).out == "4711\n"
    assert Path("words").read_text() == "--parsable\n"
    assert Path("script").read_text() == (SCRIPTS / "nodes.sh").read_text()
    stand_in.write_text("#!/bin/sh\necho 'sbatch: error: no such account' >&2; exit 1\n")
    answer = exarl("slurm", "--submit", *CART)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == "exarl: sbatch refused the job: sbatch: error: no such account\n"


def test_a_run_is_resumed_where_it_is(exarl: Any) -> None:
    words = ("--agent", "Random-v0", "--env", "CartPole-v1", "--run_dir", "here", "--serial")
    assert exarl("train", *words, "--total_steps", "64").code == 0
    exarl("slurm", "--", "resume", "here").refused("the run is finished (total_steps)")
    text = exarl("slurm", "--nodes", "3", "--", "resume", "here", "--total_steps", "128").out
    assert "    exarl resume here --total_steps 128\n" in text
    assert "run=" not in text
