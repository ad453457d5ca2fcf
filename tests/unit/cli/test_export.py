"""``exarl export``: a file of each format, and nothing written by a mistake."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl import registry
from exarl.cli.export import identifier
from exarl.export import Policy, evaluate, from_npz
from exarl.export.policy import Affine, ArgMax
from exarl.records.checkpoint import Checkpoint, save_checkpoint
from exarl.run.configure import configure
from exarl.run.start import create_run


class Linear:
    """As much of an agent as an export needs: four weights rate the pole's four numbers."""

    Config = registry.agents.load("DQN-v0").Config
    action_kind = "discrete"
    factors_actions = respects_masks = mixes_actions = False

    @classmethod
    def discrete_bins(cls, config: Any) -> int:
        return 5

    def __init__(self, *made_of: Any) -> None:
        pass

    def set_weights(self, weights: np.ndarray) -> None:
        if weights.shape != (4,):
            raise ValueError(f"expected 4 weights, not {weights.shape}")
        self.weights = weights

    def exported(self) -> Policy:
        columns = np.stack([-self.weights, self.weights], 1)
        return Policy((Affine(columns, np.zeros(2)), ArgMax()), 4, 1)


class Mute(Linear):
    exported = None  # type: ignore[assignment]


@pytest.fixture
def run(exarl: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the linear agent with one checkpoint, in the current folder."""
    entries = {**registry.agents._entries, "Linear-v0": Linear, "Mute-v0": Mute}
    monkeypatch.setattr(registry.agents, "_entries", entries)
    return stored("Linear-v0", np.array([0.0, 0, 1, 0], np.float32))


def stored(agent: str, weights: np.ndarray) -> Path:
    path = Path(f"run_{agent}")
    overrides = {"agent": agent, "env": "CartPole-v1", "run_dir": str(path)}
    create_run(configure(overrides=overrides), {"world": 1}, None)
    save(path / "checkpoints", 1234, weights)
    return path


def save(folder: Path, steps: int, weights: np.ndarray) -> None:
    numbers = {"counters": {"steps": steps}}
    save_checkpoint(folder, steps, Checkpoint({"agent": {"weights": weights}}, numbers), 1)


def test_each_format_is_written_and_named(exarl: Any, run: Path) -> None:
    pytest.importorskip("onnx")
    for form, name in (("npz", "policy.npz"), ("onnx", "policy.onnx"), ("c", "policy.h")):
        answer = exarl("export", str(run), "--format", form)
        assert (answer.code, answer.err) == (0, "")
        assert "policy after 1,234 steps\n" in answer.out
        assert f"{run / name}: 4 inputs, 1 outputs\n" in answer.out
        assert (run / name).stat().st_size > 100
    assert "policy_act(const float *observation" in (run / "policy.h").read_text()
    seen = np.array([[0, 0, 0.1, 0], [0, 0, -0.1, 0]])
    assert evaluate(from_npz(run / "policy.npz"), seen).ravel().tolist() == [1, 0]


def test_the_output_is_chosen_and_the_name_in_c_follows(exarl: Any, run: Path) -> None:
    assert exarl("export", str(run), "--format", "c", "--output", "my-pole.h").code == 0
    assert "void my_pole_act(" in Path("my-pole.h").read_text()


@pytest.mark.parametrize(
    ("stem", "name"), [("policy", "policy"), ("my-pole 2", "my_pole_2"), ("2nd", "policy_2nd")]
)
def test_a_file_name_becomes_a_c_name(stem: str, name: str) -> None:
    assert identifier(stem) == name


def test_the_best_policy_on_request(exarl: Any, run: Path) -> None:
    words = ("export", str(run), "--format", "npz", "--best")
    exarl(*words).refused("has no best policy")
    save(run / "best", 900, np.array([0.0, 0, -1, 0], np.float32))
    assert "policy after 900 steps" in exarl(*words).out
    seen = np.array([[0, 0, 0.1, 0]])
    assert evaluate(from_npz(run / "policy.npz"), seen).item() == 0


def test_what_is_there_stays_unless_forced(exarl: Any, run: Path) -> None:
    Path("kept.npz").write_text("precious")
    words = ("export", str(run), "--format", "npz", "--output", "kept.npz")
    exarl(*words).refused("kept.npz already exists", "--force")
    assert Path("kept.npz").read_text() == "precious"
    assert exarl(*words, "--force").code == 0
    assert from_npz("kept.npz").inputs == 4


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["which --format?", "npz, onnx or c"]),
        (["--format", "onxn"], ["no format 'onxn'", "did you mean 'onnx'?"]),
        (["--format", "c", "--output", "nowhere/p.h"], ["there is no folder nowhere"]),
        (["--format", "c", "--output", "."], ["it is a folder"]),
        (["--format", "c", "--output", "x" * 5000], ["cannot write"]),
        (["--format", "c", "--nonsense"], ["unexpected '--nonsense'"]),
    ],
)
def test_a_mistake_is_one_line(exarl: Any, run: Path, words: list[str], parts: list[str]) -> None:
    before = sorted(Path.cwd().rglob("*"))
    exarl("export", str(run), *words).refused(*parts)
    assert sorted(Path.cwd().rglob("*")) == before


def test_where_there_is_no_run(exarl: Any) -> None:
    exarl("export").refused("which run directory?")
    exarl("export", "nowhere", "--format", "c").refused("no run directory at nowhere")


def test_an_agent_that_cannot_say_what_it_does(exarl: Any, run: Path) -> None:
    path = stored("Mute-v0", np.zeros(4, np.float32))
    exarl("export", str(path), "--format", "c").refused("agent 'Mute-v0' cannot be exported")


@pytest.mark.parametrize("weights", [np.zeros(3, np.float32), np.full(4, np.nan, np.float32)])
def test_weights_that_make_no_policy(exarl: Any, run: Path, weights: np.ndarray) -> None:
    save(run / "checkpoints", 2000, weights)
    answer = exarl("export", str(run), "--format", "npz")
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert not (run / "policy.npz").exists()


def test_without_the_package_onnx_is_refused(
    exarl: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    exarl("export", str(run), "--format", "onnx").refused("exarl[export]")


def test_a_failure_leaves_nothing_half_written(
    exarl: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    answer = exarl("export", str(run), "--format", "npz")
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "No space left" in answer.err
    assert not [path for path in run.iterdir() if "policy" in path.name]
