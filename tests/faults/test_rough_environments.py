"""Environments that exit, have no words or leave threads: exit code, files and messages are right."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.jobs import Ended, run, summary_of, train

ROUGH = '''
import sys, threading, time
import gymnasium, numpy as np


class Mute(Exception):
    def __str__(self):
        raise KeyError("no words")


class Rough(gymnasium.Env):
    """Does the deeds named in ``deeds`` at step 30, or where their names say."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, deeds=""):
        self.deeds, self.steps = deeds.split("+"), 0
        if "exit_init" in self.deeds:
            sys.exit(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 30:
            if "thread" in self.deeds:
                threading.Thread(target=time.sleep, args=(3600,), name="solver").start()
            if "exit" in self.deeds:
                sys.exit(0)
            if "mute" in self.deeds:
                raise Mute
            if "raise" in self.deeds:
                raise RuntimeError("the solver diverged")
        return np.zeros(2, np.float32), 0.0, self.steps % 10 == 0, False, {}

    def close(self):
        if "close" in self.deeds:
            raise ValueError("the file is closed already")
        if "exit_close" in self.deeds:
            sys.exit(0)


gymnasium.register("Rough-v0", "rough:Rough", max_episode_steps=20)
'''
ADVICE = "--env_failure restart"


@pytest.fixture
def rough(tmp_path: Path) -> Any:
    """Trains in an environment that does the named deeds."""
    (tmp_path / "rough.py").write_text(ROUGH)

    def go(deeds: str, *words: Any) -> Ended:
        subject = ("--env", "rough:Rough-v0", "--deeds", deeds, "--agent", "Random-v0")
        return run(train(tmp_path / "run", *subject, "--total_steps", 100, *words), cwd=tmp_path)

    return go


@pytest.mark.parametrize(
    ("deeds", "code", "last"),
    [
        ("exit", 1, "exarl: environment 0: SystemExit: 0"),
        ("exit_init", 2, "exarl: environment 'rough:Rough-v0' cannot be made: SystemExit: 0"),
        ("mute", 1, "rough.Mute: <exception str() failed>"),
        ("raise+close+thread", 1, "exarl: threads that do not end are left behind: solver"),
    ],
)
def test_an_environment_that_fails_never_passes_for_success(
    rough: Any, deeds: str, code: int, last: str
) -> None:
    ended = rough(deeds)
    assert ended.code == code
    *lines, end = ended.err.rstrip().splitlines()
    assert end == last
    if "raise" in deeds:
        assert lines[-1] in (
            "RuntimeError: the solver diverged",
            "environment 0: close raised ValueError: the file is closed already",
        )
        assert ended.err.count("RuntimeError: the solver diverged") == 1
    if "init" not in deeds:
        assert ended.err.count(ADVICE) == 1
        assert ended.err.count("Traceback") == (deeds != "exit")


@pytest.mark.slow
@pytest.mark.parametrize("deeds", ["thread", "close", "exit_close"])
def test_a_run_that_is_done_is_done(rough: Any, tmp_path: Path, deeds: str) -> None:
    """Whatever its environment does when it is closed, or leaves running."""
    started = time.monotonic()
    ended = rough(deeds).ok()
    assert time.monotonic() - started < 60
    assert "stopped by     total_steps" in ended.out
    assert summary_of(tmp_path / "run")["reason"] == "total_steps"
    assert (tmp_path / "run" / "learning_curve.png").is_file()
    said = {"thread": "left behind: solver", "close": "close raised ValueError: the file is closed"}
    assert said.get(deeds, "close raised SystemExit: 0") in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["inline", "process"])
@pytest.mark.parametrize("deeds", ["exit+thread", "mute+close"])
def test_it_is_restarted_all_the_same(
    rough: Any, tmp_path: Path, deeds: str, isolation: str
) -> None:
    words = ("--env_failure", "restart", "--env_isolation", isolation, "--block_steps", 8)
    started = time.monotonic()
    rough(deeds, *words).ok()
    assert time.monotonic() - started < 30
    failures = summary_of(tmp_path / "run")["env_failures"]
    assert failures["raise"] == 3
    assert failures["crash"] == failures["timeout"] == 0


def test_failures_on_other_ranks_reach_the_terminal(rough: Any, tmp_path: Path) -> None:
    words = ("--procs", 2, "--env_failure", "restart", "--block_steps", 8, "--total_steps", 150)
    ended = rough("raise", *words).ok()
    assert summary_of(tmp_path / "run")["env_failures"]["raise"] == 5
    told = [line for line in ended.err.splitlines() if line.endswith("it is restarted")]
    assert len(told) == 3, "the first three, as documented"
    assert told[0].startswith("WARNING: environment 0: RuntimeError: the solver diverged")


def test_a_failure_on_another_rank_is_shown_once(rough: Any) -> None:
    ended = rough("raise+thread", "--procs", 3)
    assert ended.code == 1
    assert ended.err.count("Traceback") == 1
    assert ADVICE in ended.err
    assert ended.err.rstrip().splitlines()[-1] == "RuntimeError: the solver diverged"
