"""Checkpoints that earlier versions wrote load and continue; ``support.golden`` writes new ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import jobs
from support.golden import CASES, DATA, ON_RANKS
from support.jobs import sum_again

from exarl import ExaLearner
from exarl.cli.main import main
from exarl.errors import CheckpointError
from exarl.records.checkpoint import FORMAT, list_checkpoints, load_newest
from exarl.records.directory import RunDirectory, stored_ranks

GOLDEN = sorted(DATA.glob("format-*/*"))
CONTINUED = [path for path in GOLDEN if path.parent.name != "format-0"]
LONG = ("fused", "a2c-two-learners")
BEFORE = [path for path in GOLDEN if path.parent.name == "format-0"]


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a golden run."""
    return Path(shutil.copytree(request.param, tmp_path / "run"))


def continue_run(run: Path) -> tuple[int, int]:
    """Train twice as long; the steps before and after."""
    before = int(list_checkpoints(run / "checkpoints")[0].name)
    words = ["--total_steps", str(2 * before)]
    if stored_ranks(RunDirectory(run)) > 1:
        jobs.run(jobs.resume(run, *words)).ok()
    else:
        ExaLearner.resume(run, argv=words, serial=True).run()
    summary = jobs.summary_of(run)
    assert summary["reason"] == "total_steps"
    return before, int(summary["timesteps_total"])


def test_every_case_is_kept_in_the_present_format() -> None:
    kept = {path.name for path in CONTINUED if path.parent.name == f"format-{FORMAT}"}
    assert kept == {*CASES, *ON_RANKS}


@pytest.mark.parametrize(
    "run",
    [pytest.param(p, marks=pytest.mark.slow if p.name in LONG else ()) for p in CONTINUED],
    ids=label,
    indirect=True,
)
def test_a_golden_run_loads_and_continues(run: Path) -> None:
    rows = len((run / "result.jsonl").read_text().splitlines())
    before, after = continue_run(run)
    assert after >= 2 * before
    newest = load_newest(run / "checkpoints")
    assert newest is not None
    assert newest.format == FORMAT
    assert newest.numbers["counters"]["steps"] == after
    written = (run / "result.jsonl").read_text().splitlines()
    assert len(written) > rows
    assert json.loads(written[rows])["timesteps_total"] > before


@pytest.mark.parametrize("run", BEFORE, ids=label, indirect=True)
def test_the_format_before_continues_or_is_refused_in_one_line(run: Path) -> None:
    """Its arrays have no names; what acts is the same as ever."""
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0
    try:
        before, after = continue_run(run)
    except CheckpointError as refused:
        line = str(refused)
        assert "\n" not in line
        assert "does not fit this run" in line
        assert "written by EXARL 0.1.0" in line
    else:
        assert after == 2 * before


def other_network(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["model"]["hidden"] = [5]
    (run / "config.json").write_text(json.dumps(config))


def other_agent(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(DATA / "format-1" / "a3c-lstm" / "checkpoints", run / "checkpoints")


def normalised(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["model"]["layer_norm"] = True
    (run / "config.json").write_text(json.dumps(config))


def other_environment(run: Path) -> None:
    (newest,) = (run / "checkpoints").iterdir()
    state = json.loads((newest / "state.json").read_text())
    state["made_for"]["env"] = "CartPole-v1"
    (newest / "state.json").write_text(json.dumps(state))
    sum_again(newest)


@pytest.mark.parametrize("run", [DATA / "format-1" / "ppo"], ids=label, indirect=True)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_network, "in the checkpoint"),
        (normalised, "layer_norm is false in the checkpoint, true in this run"),
        (other_agent, "agent is A3C-v0 in the checkpoint, PPO-v0 in this run"),
        (other_environment, "env is CartPole-v1 in the checkpoint, ExaMaskedCartPole-v0 in this"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_in_one_line(
    run: Path, change: Callable[[Path], None], said: str
) -> None:
    change(run)
    with pytest.raises(CheckpointError) as refused:
        continue_run(run)
    line = str(refused.value)
    assert "does not fit this run" in line
    assert said in line
    assert "\n" not in line


@pytest.mark.parametrize("run", [DATA / "format-1" / "ppo"], ids=label, indirect=True)
def test_a_run_from_before_a_parameter_existed_continues(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    del config["learner"]["on_divergence"], config["agent"]["gae_lambda"]
    (run / "config.json").write_text(json.dumps(config))
    before, after = continue_run(run)
    assert after == 2 * before
