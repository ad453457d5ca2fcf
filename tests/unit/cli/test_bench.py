"""``exarl bench``: what it prints, what it refuses, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.jobs import EXARL, run

from exarl.cli.advice import advise
from exarl.comm.layout import Layout
from exarl.config import Configuration
from exarl.run.configure import configure
from exarl.training.measure import EnvRate, LearningRate

SMALL = ("--hidden", "[8]", "--seconds", "0.4")
PARTS = {
    "environment": {
        "steps",
        "steps_per_s",
        "median_us",
        "p99_us",
        "reset_us",
        "failures",
        "spread",
    },
    "acting": {"observations", "call_us", "actions_per_s"},
    "learning": {
        "block_steps",
        "block_us",
        "steps_per_s",
        "updates_per_s",
        "update_us",
        "first_s",
        "weights",
    },
    "training": {"seconds", "steps_per_s", "updates_per_s", "whole"},
}


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_dqn_as_a_table(exarl: Any, scratch: Path, tmp_path: Path) -> None:
    answer = exarl("bench", *SMALL, "--run_dir", "mine", "--total_steps", "1")
    assert answer.code == 0, answer
    title, *lines = answer.out.splitlines()
    assert title == "DQN-v0 · CartPole-v1 · sync, one process"
    names = ["environment", "acting", "learning", "training", "bound", "advice"]
    assert [line.split()[0] for line in lines] == names
    for text in lines[:4]:
        assert float(text.split()[1].replace(",", "")) > 0
    assert not list(scratch.iterdir())
    assert not list((tmp_path / "work").iterdir())


def test_ppo_as_json(exarl: Any, scratch: Path) -> None:
    words = ("--agent", "PPO-v0", "--envs_per_actor", "4", "--minibatches", "2")
    answer = exarl("bench", "--json", *words, *SMALL)
    assert answer.code == 0, answer
    found = json.loads(answer.out)
    assert {name: set(found[name]) for name in PARTS} == PARTS
    told = {"agent": "PPO-v0", "env": "CartPole-v1", "workflow": "sync", "procs": 1}
    assert {name: found[name] for name in told} == told
    assert found["acting"]["observations"] == 4
    assert found["learning"]["block_steps"] == 4 * found["block_steps"]
    for part in PARTS:
        rates = [value for name, value in found[part].items() if name.endswith("_per_s")]
        assert min(rates) > 0
    assert {"learn", "env", "inference"} <= set(found["time_split"]["learner"])
    assert found["bound_by"]
    assert found["advice"]
    assert not list(scratch.iterdir())


def test_an_environment_too_slow_to_train_is_said_to_be(exarl: Any, scratch: Path) -> None:
    slow = ("--env", "ExaLatency-v0", "--mean_seconds", "0.05")
    answer = exarl("bench", "--json", *slow, *SMALL)
    found = json.loads(answer.out)
    assert found["training"] is None
    assert found["note"].startswith("a block takes ")
    assert 0 < found["environment"]["steps_per_s"] <= 20
    assert 50_000 <= found["environment"]["median_us"] <= found["environment"]["p99_us"]
    assert found["bound_by"].startswith("the environment")
    assert "--procs" in found["advice"]


def test_an_agent_that_learns_nothing(exarl: Any, scratch: Path) -> None:
    answer = exarl("bench", "--agent", "Random-v0", "--env", "Pendulum-v1", "--seconds", "0.4")
    assert answer.code == 0, answer
    assert "the agent makes no updates" in answer.out
    assert "bound by    the environment" in answer.out


@pytest.mark.slow
def test_on_several_ranks(tmp_path: Path) -> None:
    words = ("bench", "--json", "--procs", "2", "--workflow", "async", *SMALL)
    folders = [tmp_path / "scratch", tmp_path / "work"]
    for folder in folders:
        folder.mkdir()
    environ = {"TMPDIR": str(tmp_path / "scratch")}
    ended = run([*EXARL, *words], cwd=tmp_path / "work", environ=environ).ok()
    found = json.loads(ended.out)
    assert (found["procs"], found["workflow"]) == (2, "async")
    assert found["training"]["updates_per_s"] > 0
    assert "wait" in found["time_split"]["learner"]
    assert not [path for folder in folders for path in folder.iterdir()]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--seconds", "soon"], ["seconds", "'soon'"]),
        (["--seconds", "0"], ["seconds", "'0'"]),
        (["--seconds", "nan"], ["seconds"]),
        (["--seconds"], ["--seconds needs a value"]),
        (["--learning_rat", "1"], ["learning_rat", "did you mean 'learning_rate'"]),
        (["--env", "CartPool-v1"], ["CartPool-v1"]),
        (["--procs", "2", "--process_per_env", "4"], ["process_per_env=4"]),
        (["--procs", "3", "--learner_procs", "2"], ["sync", "learner_procs"]),
        (["--n_step", "100", "--model_type", "LSTM"], ["block_steps"]),
        (["CartPole-v1"], ["unexpected 'CartPole-v1'"]),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(
    exarl: Any, words: list[str], parts: list[str]
) -> None:
    exarl("bench", *words).refused(*parts)


def test_it_starts_its_own_ranks(exarl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    exarl("bench").refused("--procs N")


def test_an_interrupt_leaves_nothing(exarl: Any, scratch: Path, tmp_path: Path) -> None:
    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not list(scratch.glob("*/run/logs/*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    answer = exarl("bench", "--hidden", "[8]", "--seconds", "4")
    thread.join()
    assert answer.code == 130, answer
    assert answer.out == ""
    assert answer.err.endswith("exarl: interrupted\n")
    assert not list(scratch.iterdir())
    assert not list((tmp_path / "work").iterdir())


# -- advice ---------------------------------------------------------------------------------------


def advice(split: Any, parts: tuple[float, float, float], layout: Layout, **values: Any) -> str:
    configuration: Configuration = configure(None, [], values)
    env = EnvRate(100, 1 / parts[0], 1e6 * parts[0], 4e6 * parts[0], 0.0, 0)
    learning = LearningRate(32, 0.0, 1 / parts[2], 1 / parts[2], 1e6 * parts[2], 1.0)
    return advise(configuration, layout, parts, env, learning, split)[1]


ALONE, FOUR = Layout(1, 1, 1), Layout(5, 1, 1)
LEARN, ACT = (
    {"env": 0.05, "learn": 0.05, "inference": 0.05, n: 0.9} for n in ("learn", "inference")
)
TURNS = {"env": 0.2, "inference": 0.2, "learn": 0.6}


@pytest.mark.parametrize(
    ("split", "parts", "layout", "values", "expected"),
    [
        ((LEARN, {}), (1e-5, 1e-5, 1e-3), ALONE, {"updates_per_step": 1.0}, "updates_per_step 0.5"),
        ((TURNS, {}), (1e-4, 1e-4, 2e-4), ALONE, {}, "procs 2: at most 1.7 times as fast, 4,167"),
        ((LEARN, {}), (1e-5, 1e-5, 1e-1), ALONE, {"agent": "PPO-v0", "epochs": 4}, "--epochs 2"),
        ((LEARN, {}), (1e-5, 1e-5, 1e-1), ALONE, {}, "GPU"),
        ((ACT, {}), (1e-5, 1e-4, 1e-5), ALONE, {"envs_per_actor": 2}, "--envs_per_actor 8"),
        (
            ({"learn": 0.1, "wait": 0.9}, {"env": 0.5, "wait": 0.5}),
            (1e-3, 1e-5, 1e-4), FOUR, {}, "4.0 times the median): --workflow async: at most 2.0",
        ),
        (({"compile": 0.9}, {}), (1e-3, 1e-5, 1e-4), ALONE, {}, "--seconds"),
    ],
)  # fmt: skip
def test_the_advice_follows_from_the_numbers(
    split: Any,
    parts: Any,
    layout: Layout,
    values: dict[str, Any],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(2))
    assert expected in advice(split, parts, layout, **values)
