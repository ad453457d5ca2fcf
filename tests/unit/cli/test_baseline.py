"""``exarl baseline``: runs of plain methods that other commands know."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import exarl
from exarl.cli.baseline import baseline
from exarl.cli.runs import describe
from exarl.errors import ConfigError

QUICK = ["--env", "CartPole-v1", "--budget", "400", "--seed", "3", "--eval_episodes", "2"]


@pytest.mark.parametrize("method", ["random", "hold", "cma-es"])
def test_a_method_leaves_a_run_that_can_be_evaluated(
    tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert baseline(["--method", method, "--run_dir", str(run), *QUICK]) == 0
    listed = describe(run)
    assert (listed["state"], listed["steps"]) == ("finished", 416)
    assert listed["evaluation"] is not None
    played = exarl.evaluate(run, episodes=2)
    assert played is not None and played.steps == 416
    if method != "random":
        told = json.loads((run / "controller.json").read_text())
        assert told["form"] == {"hold": "constant", "cma-es": "linear"}[method]
        assert f"controller     {run}" in capsys.readouterr().out


def test_the_controller_in_the_file_acts_as_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    baseline(["--method", "cma-es", "--run_dir", str(run), *QUICK])
    told = json.loads((run / "controller.json").read_text())
    policy = exarl.load(run, best=True)
    for seen in np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32):
        inputs = (seen - told["mean"]) / told["deviation"]
        scores = np.array(told["bias"]) + np.array(told["gains"]) @ inputs.clip(-10, 10)
        assert policy.act(seen) == scores.argmax()


def test_a_budget_of_episodes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--env", "CartPole-v1", "--budget", "5", "--budget_in", "episodes"]
    assert baseline(["--method", "random", "--run_dir", str(run), *words]) == 0
    assert json.loads((run / "summary.json").read_text())["reason"] == "n_episodes"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "cma", "--budget", "5"], "did you mean 'cma-es'"),
        (["--method", "pid"], "how much may it cost"),
        (["--method", "pid", "--form", "linear", "--budget", "5"], "not for pid"),
        (
            ["--method", "pid", "--agent", "DQN-v0", "--budget", "5"],
            "--agent is not for a baseline",
        ),
        (
            ["--method", "pid", "--budget", "5", "--budget_in", "hours"],
            "--budget_in is not 'hours'",
        ),
    ],
)
def test_bad_words_are_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        baseline(words)
    assert not list(tmp_path.iterdir())
