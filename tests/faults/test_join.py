"""Simulations that join a learner over a socket: they die and come, the run stops and goes on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.jobs import (
    EXARL,
    LIGHT,
    Job,
    newest,
    resume,
    summary_of,
    train,
    under_mpi,
    wait_until,
)

from exarl.records.checkpoint import load_newest

WORDS = (*LIGHT, "--workflow", "elastic", "--block_steps", "8", "--env", "ExaLatency-v0",
         "--learning_rate", "0.0001")  # fmt: skip  # so that it does not diverge


class Jobs:
    """A learner and simulations, all of which are gone at the end."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        self._stack, self.path = stack, folder / "run"
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]  # free for a moment at least

    def start(self, *command: Any, **options: Any) -> Job:
        job = Job([str(word) for word in command], **options)
        self._stack.callback(job.kill)
        return job

    def learn(self, *words: Any) -> Job:
        return self.start(*train(self.path, *WORDS, "--listen", self.port, *words))

    def join(self, *words: Any, ranks: int = 1, **options: Any) -> Job:
        command = [*EXARL, "actor", "--join", f"127.0.0.1:{self.port}"]
        command += ["--key-file", str(self.path / "join.key"), *map(str, words)]
        wait_until((self.path / "join.key").exists)
        return self.start(*(under_mpi(ranks, command) if ranks > 1 else command), **options)

    def log(self) -> str:
        log = self.path / "logs" / "rank_0000.log"
        return log.read_text() if log.exists() else ""

    def acting(self) -> int:
        """How many actors have begun to act, lost ones included."""
        return len(list((self.path / "logs").glob("rank_*.log"))) - 1


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with contextlib.ExitStack() as stack:
        yield Jobs(stack, tmp_path)


def test_a_run_of_simulations_that_join(jobs: Jobs) -> None:
    learner = jobs.learn("--total_steps", 400)
    actor = jobs.join()
    ended = learner.wait().ok()
    assert "stopped by     total_steps" in ended.out
    mode = stat.S_IMODE((jobs.path / "join.key").stat().st_mode)
    assert mode == 0o600
    assert f"--key-file {jobs.path / 'join.key'}" in ended.err
    assert "actor 0 joined" in ended.err
    last = actor.wait().ok().out.splitlines()[-1]
    assert last == "exarl: the run ended (total_steps)"
    assert summary_of(jobs.path)["timesteps_total"] >= 400


@pytest.mark.slow
def test_groups_are_lost_and_join_and_a_stopped_run_goes_on(jobs: Jobs) -> None:
    words = ("--process_per_env", 2, "--total_steps", 10**6)
    learner = jobs.learn(*words)
    first, _ = jobs.join(ranks=2), jobs.join("--ranks", 2, ranks=4)
    wait_until(lambda: jobs.acting() == 6)
    first.kill()  # all of its ranks at once
    wait_until(lambda: "was lost" in jobs.log())
    late = jobs.join(ranks=2)
    wait_until(lambda: jobs.acting() == 8)
    learner.send(signal.SIGTERM)
    ended = learner.wait()
    assert ended.code == 128 + signal.SIGTERM and "2 left" in ended.err, ended.err
    assert late.wait().ok().out.splitlines()[-1] == "exarl: the run ended (SIGTERM)"
    summary = summary_of(jobs.path)
    steps, books = summary["timesteps_total"], summary["blocks"]
    assert summary["env_failures"]["crash"] == 1
    assert books["trained"] + books["left"] + books["dropped"] == books["produced"]
    states = newest(jobs.path).arrays["envs"]
    known = {name.partition("/")[0] for name in states if "/" in name}
    assert "3" in known and len(known) == 3, "the lost one is none of them"

    again = jobs.start(*resume(jobs.path, "--total_steps", steps + 200))
    actor = jobs.join("--retry", 30, ranks=2)
    assert f"continuing at step {steps:,}" in again.wait().ok().err
    numbers = re.findall(r"as actor (\d+)", actor.wait().ok().out)
    assert [int(number) for number in numbers] == [min(map(int, known))], "it takes a stored place"


def test_actors_wait_for_a_learner_that_was_killed(jobs: Jobs) -> None:
    learner = jobs.learn("--checkpoint_interval", 0.5, "--total_steps", 10**6)
    actor = jobs.join("--retry", 100)
    wait_until(lambda: load_newest(jobs.path / "checkpoints") is not None)
    learner.kill()
    steps = newest(jobs.path).numbers["counters"]["steps"]
    again = jobs.start(*resume(jobs.path, "--total_steps", steps + 100))
    assert f"continuing at step {steps:,}" in again.wait().ok().err
    ended = actor.wait().ok()
    assert "is lost: the connection was closed; trying for 100 s" in ended.out
    assert ended.out.count("joined") == 2


@pytest.mark.slow
def test_strangers_do_not_disturb_a_run(jobs: Jobs) -> None:
    learner = jobs.learn("--total_steps", 500)
    actor = jobs.join()
    wait_until(lambda: jobs.acting() == 1)
    environ = {"EXARL_JOIN_KEY": "another key, long enough"}
    words = [*EXARL, "actor", "--join", f"127.0.0.1:{jobs.port}"]
    refused = jobs.start(*words, environ=environ).wait()
    assert refused.code == 2 and "has another key" in refused.err
    with contextlib.ExitStack() as stack:
        for number in range(200):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", jobs.port)))
            with contextlib.suppress(OSError):
                stranger.sendall(os.urandom(number))
        assert summary_ok(learner)
    actor.wait().ok()


def summary_ok(learner: Job) -> bool:
    return "stopped by     total_steps" in learner.wait().ok().out


def test_a_stopped_actor_leaves_and_the_run_waits(jobs: Jobs) -> None:
    learner = jobs.learn("--total_steps", 10**6)
    actor = jobs.join()
    wait_until(lambda: jobs.acting() == 1)
    actor.send(signal.SIGINT)
    ended = actor.wait()
    assert ended.code == 128 + signal.SIGINT
    assert ended.out.splitlines()[-1] == "exarl: stopped by SIGINT"
    wait_until(lambda: "actor 0 was lost" in jobs.log())
    learner.send(signal.SIGINT)
    ended = learner.wait()
    assert ended.code == 128 + signal.SIGINT
    assert "stopped by SIGINT); none is left, waiting for others" in ended.err


BROKEN = """
import gymnasium

class Broken(gymnasium.Env):
    def __init__(self):
        raise OSError("no licence for the solver")

gymnasium.register("Broken-v0", "broken:Broken")
"""


def test_a_simulation_that_cannot_start_ends_alone(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    command = train(jobs.path, *WORDS, "--listen", jobs.port, "--env", "broken:Broken-v0")
    learner = jobs.start(*command, cwd=tmp_path)
    elsewhere = jobs.join(cwd="/").wait()
    assert elsewhere.code == 2 and "broken" in elsewhere.err.splitlines()[-1]
    here = jobs.join(cwd=tmp_path).wait()
    assert here.code and "no licence for the solver" in here.err
    learner.send(signal.SIGTERM)
    ended = learner.wait()
    assert ended.code == 128 + signal.SIGTERM
    assert "could not become actor 0" in ended.err and "no licence" in ended.err
    assert not jobs.path.exists(), "neither run nor key is left"


def test_what_cannot_be_is_refused_before_anything_is_there(jobs: Jobs) -> None:
    ended = jobs.learn("--listen", "192.0.2.1:0").wait()
    assert ended.code == 2 and "cannot listen at 192.0.2.1:0" in ended.err.splitlines()[-1]
    assert not jobs.path.exists()
    command = [*EXARL, "actor", "--join", f"127.0.0.1:{jobs.port}"]
    ended = jobs.start(*command).wait()
    assert ended.code == 2 and "no key: --key-file" in ended.err
    environ = {"EXARL_JOIN_KEY": "k" * 20}
    ended = jobs.start(*command, "--retry", 0, environ=environ).wait()
    assert ended.code == 1 and "no learner answers at 127.0.0.1" in ended.err
