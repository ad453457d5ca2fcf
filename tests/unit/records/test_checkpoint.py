"""Checkpoints on disk: every byte is verified, other formats and other runs are refused by name."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.jobs import sum_again

from exarl import __version__
from exarl.config import LearnerConfig
from exarl.errors import CheckpointError
from exarl.records.checkpoint import (
    FORMAT,
    Checkpoint,
    NewerFormat,
    check_made_for,
    difference,
    find_newest,
    fitting,
    load_checkpoint,
    load_newest,
    made_for,
    save_checkpoint,
)
from exarl.records.directory import RunDirectory
from exarl.types import ArraySpec, EnvSpec

SPEC = EnvSpec("CartPole-v1", ArraySpec((4,), "float32"), ArraySpec((), "int64"), 2)
STORED = Checkpoint(
    {
        "agent": {"weights": np.arange(3, dtype=np.float32)},
        "agent_0001": {"weights": np.arange(3, dtype=np.float32)},
        "agent_0003": {"weights": np.ones(3, np.float32)},
        "envs": {"0/stream": np.array(7)},
        "pending": {},
    },
    {"counters": {"steps": 32}, "made_for": made_for(LearnerConfig(), {}, SPEC)},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Checkpoints of steps 16 and 32."""
    for step in (16, 32):
        save_checkpoint(tmp_path / "kept", step, STORED, keep=3)
    return tmp_path / "kept"


def test_what_is_saved_is_loaded(folder: Path) -> None:
    loaded = load_newest(folder)
    assert loaded is not None
    assert loaded.numbers == STORED.numbers
    assert loaded.format == FORMAT == 1
    assert loaded.arrays.keys() == STORED.arrays.keys()
    for group, arrays in STORED.arrays.items():
        assert loaded.arrays[group].keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(loaded.arrays[group][name], array)


def test_the_format_comes_first_and_names_its_writer(folder: Path) -> None:
    state = json.loads((folder / "000000000032/state.json").read_text())
    assert list(state)[:2] == ["format", "exarl"]
    assert (state["format"], state["exarl"]) == (1, __version__)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_the_checksums_are_those_of_sha256sum(folder: Path) -> None:
    checked = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(checked, cwd=folder / "000000000032", check=True)


def test_any_flipped_bit_in_any_file_is_noticed(folder: Path) -> None:
    """And the checkpoint before is used."""
    newest, before = folder / "000000000032", folder / "000000000016"
    for file in sorted(newest.iterdir()):
        whole = file.read_bytes()
        for place in range(len(whole)):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            file.write_bytes(damaged)
            with pytest.raises(CheckpointError, match=f"{newest} is damaged"):
                load_checkpoint(newest)
        assert find_newest(folder) == before
        file.write_bytes(whole)
    assert find_newest(folder) == newest


def test_any_file_cut_short_or_gone_is_noticed(folder: Path) -> None:
    newest = folder / "000000000032"
    for file in sorted(newest.iterdir()):
        whole = file.read_bytes()
        for length in range(0, len(whole), 3):
            file.write_bytes(whole[:length])
            with pytest.raises(CheckpointError, match="is damaged"):
                load_checkpoint(newest)
        file.unlink()
        with pytest.raises(CheckpointError, match="is damaged"):
            load_checkpoint(newest)
        file.write_bytes(whole)
    load_checkpoint(newest)


def test_a_newer_format_is_refused_and_not_passed_over(folder: Path) -> None:
    newest = folder / "000000000032"
    (newest / "state.json").write_text(json.dumps({"format": 2, "exarl": "9.8.7", "more": []}))
    sum_again(newest)
    for use in (load_newest, find_newest):
        with pytest.raises(NewerFormat) as refused:
            use(folder)
        line = str(refused.value)
        assert "format 2, written by EXARL 9.8.7" in line
        assert f"EXARL {__version__}, which reads formats up to 1" in line
        assert "\n" not in line


def test_a_failed_write_leaves_the_one_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in folder.rglob("*"))

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(folder, 32, STORED, keep=1)
    assert sorted(path.name for path in folder.rglob("*")) == before
    load_checkpoint(folder / "000000000032")


def test_the_same_step_again_replaces_it(folder: Path) -> None:
    numbers = {"counters": {"steps": 32}, "again": True}
    save_checkpoint(folder, 32, Checkpoint(STORED.arrays, numbers), keep=3)
    assert sorted(path.name for path in folder.iterdir()) == ["000000000016", "000000000032"]
    assert load_checkpoint(folder / "000000000032").numbers == numbers


@pytest.mark.parametrize(
    ("learner", "spec", "said"),
    [
        ({"agent": "PPO-v0"}, {}, "agent is DQN-v0 in the checkpoint, PPO-v0 in this run"),
        ({"model_type": "LSTM"}, {}, "model_type is MLP in the checkpoint, LSTM in this run"),
        ({"env": "Acrobot-v1"}, {}, "env is CartPole-v1 in the checkpoint, Acrobot-v1 in this run"),
        (
            {},
            {"observation": ArraySpec((6,), "float32")},
            r"observation is float32 \[4\] in the checkpoint, float32 \[6\] in this run",
        ),
        ({}, {"n_actions": 3}, "action is one of 2 in the checkpoint, one of 3 in this run"),
    ],
)
def test_another_run_is_refused_by_what_differs(
    learner: dict[str, str], spec: dict[str, object], said: str
) -> None:
    run = made_for(LearnerConfig(**learner), {}, dataclasses.replace(SPEC, **spec))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=said):
        check_made_for(STORED, run)
    check_made_for(STORED, made_for(LearnerConfig(), {}, SPEC))
    check_made_for(Checkpoint({}, {}), run)  # format 0 does not say


@pytest.mark.parametrize("there", [True, False, "older", "format 0"])
def test_layer_norm_is_part_of_what_a_checkpoint_belongs_to(there: bool | str) -> None:
    """No array shows it. A checkpoint that does not name it is from before it existed."""
    with_norm, plain = (made_for(LearnerConfig(), {"layer_norm": on}, SPEC) for on in (True, False))
    own, other = (with_norm, plain) if there is True else (plain, with_norm)
    stored = {name: value for name, value in own.items() if there != "older" or name[0] != "l"}
    checkpoint = Checkpoint({}, {} if there == "format 0" else {"made_for": stored})
    check_made_for(checkpoint, own)
    words = ("true", "false") if there is True else ("false", "true")
    said = "layer_norm is {} in the checkpoint, {} in this run".format(*words)
    with pytest.raises(ValueError, match=said):
        check_made_for(checkpoint, other)


def test_arrays_that_differ_are_named() -> None:
    own = {"params/q/0/w": np.zeros((4, 128), np.float32), "replay/size": np.array(0)}
    there = {"params/q/0/w": np.zeros((4, 64), np.float32), "replay/rows/action": np.zeros(9)}
    assert difference(own, own) is None
    assert difference(there, own) == (
        "params/q/0/w is float32 [4, 64] in the checkpoint, float32 [4, 128] in this agent"
    )
    there["params/q/9/w"] = there.pop("params/q/0/w")
    assert difference(there, own) == "params/q/0/w is missing in the checkpoint (and 1 more)"
    assert (
        difference({**own, "x": np.zeros(1)}, own)
        == "x is in the checkpoint, but not in this agent"
    )


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    old, own = dataclasses.replace(STORED, format=0), {"weights": np.zeros(4, np.float32)}
    said = r"does not fit this run: weights is .* in this agent; .*EXARL 0\.1\.0"
    with pytest.raises(CheckpointError, match=said), fitting(run, old, lambda: own):
        raise ValueError("shapes differ")
    own, said = STORED.arrays["agent"], "does not fit this run: KeyError: 'rows'"
    with pytest.raises(CheckpointError, match=said), fitting(run, STORED, lambda: own):
        raise KeyError("rows")
