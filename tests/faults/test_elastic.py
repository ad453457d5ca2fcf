"""The elastic workflow on a real Ray: actors die, the run is stopped and goes on, nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from support.jobs import (
    LIGHT,
    PYTHON,
    Job,
    environment_of,
    newest,
    resume,
    run,
    summary_of,
    train,
    wait_until,
)

pytest.importorskip("ray")

WORDS = (*LIGHT, "--workflow", "elastic", "--block_steps", "8", "--env", "ExaLatency-v0",
         "--learning_rate", "0.0001")  # fmt: skip  # so that it does not diverge


def hosts(job: Job, kind: str) -> list[int]:
    """The processes of its actors or learners; Ray names them when they are made."""
    name = f"ray::{kind}".encode()
    return [p for p in job.pids() if Path(f"/proc/{p}/cmdline").read_bytes().startswith(name)]


def last_row(path: Path) -> dict[str, float]:
    rows = (path / "result.jsonl").read_text().splitlines() if path.exists() else []
    return dict(json.loads(rows[-1])) if rows else {"training_iteration": 0, "env_restarts": 0}


@pytest.mark.slow
def test_killed_actors_are_replaced_and_a_stopped_run_goes_on(tmp_path: Path) -> None:
    path, folders = tmp_path / "run", set(Path("/tmp").glob("exarl-ray-*"))
    job = Job(train(path, *WORDS, "--n_actors", 2, "--wall_time", 120, "--total_steps", 10**6))
    try:
        wait_until(
            lambda: (path / "result.jsonl").exists() and last_row(path)["training_iteration"]
        )
        os.kill(hosts(job, "ActorHost")[0], signal.SIGKILL)
        wait_until(lambda: last_row(path)["env_restarts"] == 1)
        job.send(signal.SIGTERM)
        ended = job.wait()
    finally:
        job.kill()
    assert ended.code == 128 + signal.SIGTERM, ended.err
    assert "was lost" in ended.err and "exarl resume" in ended.err.splitlines()[-1]
    summary = summary_of(path)
    steps = summary["timesteps_total"]
    assert summary["reason"] == "SIGTERM" and summary["env_failures"]["crash"] == 1
    books = summary["blocks"]
    assert books["trained"] + books["left"] + books["dropped"] == books["produced"]
    states = newest(path).arrays["envs"]
    assert {name.partition("/")[0] for name in states if "/" in name} <= {"0", "1", "2"}

    ended = run(resume(path, "--total_steps", steps + 400)).ok()
    assert f"continuing at step {steps:,}" in ended.err
    summary = summary_of(path)
    assert summary["timesteps_total"] >= steps + 400 and summary["env_restarts"] >= 1
    assert set(Path("/tmp").glob("exarl-ray-*")) <= folders, "Ray's files were left"


def cluster_of(job: Job) -> tuple[int, Path]:
    """The first process of its cluster, once there is one, and the cluster's folder."""

    def found() -> tuple[int, Path] | None:
        for pid in job.pids():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
                if folder := re.search(r"/tmp/exarl-ray-\w+", line):
                    return pid, Path(folder[0])
        return None

    pid, folder = wait_until(found)
    return pid, folder


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_ray_starts_leaves_nothing(tmp_path: Path, signum: signal.Signals) -> None:
    job = Job(train(tmp_path / "run", *WORDS, "--n_actors", 1))
    try:
        _, folder = cluster_of(job)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        job.send(signum)
        ended = job.wait()
    finally:
        job.kill()
    assert ended.code == 128 + signum
    last = ended.err.splitlines()[-1]
    assert last == f"exarl: stopped by {signum.name} before the run began", ended.err
    assert not folder.exists() and not (tmp_path / "run").exists()


CONNECT = """\
import sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR")
@ray.remote(num_cpus=0)
def code():
    return "ran"
print(ray.get(code.remote()))
"""


@pytest.mark.slow
def test_nobody_joins_a_local_cluster_without_its_token(tmp_path: Path) -> None:
    job = Job(train(tmp_path / "run", *WORDS, "--n_actors", 1, "--total_steps", 10**6))
    try:
        wait_until(lambda: hosts(job, "ActorHost"))
        settings = dict(word.partition("=")[::2] for word in environment_of(cluster_of(job)[0]))
        local = {"0100007F", "0000000000000000FFFF00000100007F"}
        ports = {int(port, 16) for address, port in listening(job) if address in local}
        assert ports and {address for address, _ in listening(job)} <= local
        words = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in job.pids()]
        assert not any(settings["RAY_AUTH_TOKEN"].encode() in line for line in words)
        address = next(
            word.decode().partition("=")[2]
            for line in words
            for word in line.split(b"\0")
            if word.startswith((b"--gcs-address=", b"--gcs_address="))
        )
        assert address.startswith("127.0.0.1:")
        others = {name: value for name, value in os.environ.items() if name[:4] != "RAY_"}
        others["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # from this machine, by its own address

        def connect(**settings: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [PYTHON, "-c", CONNECT, address],
                env=others | settings,
                capture_output=True,
                text=True,
                check=False,
                timeout=100,
            )

        done = connect()
        assert done.returncode and done.stdout == "", done
        assert "InvalidAuthToken" in done.stderr
        token = {name: settings[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
        assert connect(**token).stdout == "ran\n", "it was the token that was missing"
    finally:
        job.kill()


def listening(job: Job) -> set[tuple[str, str]]:
    """Address and port, as the kernel spells them, of every TCP socket that it listens on."""
    inodes: set[str] = set()
    for pid in job.pids():
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                inodes.add(str(file.readlink()).removeprefix("socket:[").removesuffix("]"))
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    found = (line[1].split(":") for line in lines if line[3] == "0A" and line[9] in inodes)
    return {(address, port) for address, port in found}


@pytest.mark.slow
def test_a_lost_learner_is_continued_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = ("--n_actors", 2, "--checkpoint_interval", 0.5, "--total_steps", 2000)
    job = Job(train(path, *WORDS, *words))
    try:
        wait_until(lambda: path.exists() and any((path / "checkpoints").glob("*/state.json")))
        os.kill(hosts(job, "LearnerHost")[0], signal.SIGKILL)
        ended = job.wait().ok()
    finally:
        job.kill()
    assert "continuing from the last checkpoint" in ended.err
    assert 2000 <= summary_of(path)["timesteps_total"] <= 2016


@pytest.mark.slow
def test_two_learners_stay_equal(tmp_path: Path) -> None:
    words = ("--learner_procs", 2, "--n_actors", 3, "--check_learners", 5, "--agent", "DQN-v0")
    run(train(tmp_path / "run", *WORDS, *words, "--learning_starts", 100, "--hidden", "[8]")).ok()
    assert summary_of(tmp_path / "run")["updates_total"] > 500


def test_what_cannot_be_is_refused_before_anything_is_there(tmp_path: Path) -> None:
    for words, reason in (
        (("--process_per_env", 2), "process_per_env must be 1"),
        (("--address", "127.0.0.1:9"), "cannot use Ray at 127.0.0.1:9"),
        (("--procs", 3), "runs on one rank, not on 3"),
    ):
        ended = run(train(tmp_path / "run", *WORDS, *words))
        assert ended.code == 2 and reason in ended.err.splitlines()[-1]
        assert not (tmp_path / "run").exists()


BROKEN = """
import gymnasium

class Broken(gymnasium.Env):
    def __init__(self):
        raise OSError("no licence for the solver")

gymnasium.register("Broken-v0", "broken:Broken")
"""


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    words = (*WORDS, "--n_actors", 1, "--env", "broken:Broken-v0")
    ended = Job(train(tmp_path / "run", *words), cwd=tmp_path).wait()
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert "no actor could be started" in last and "no licence for the solver" in last
    assert not (tmp_path / "run").exists()
