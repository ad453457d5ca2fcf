"""The fused workflow: everything in one compiled program, and yet a run like any other."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import assert_same, everything_of, summary_of
from support.matrix import CASES, SMALL_FUSED, parameters

from exarl import ExaLearner
from exarl.errors import ConfigError
from exarl.records.checkpoint import find_newest, load_checkpoint
from exarl.records.metrics import read_rows

pytest.importorskip("jax")

LEARNERS = [name for name in CASES if name not in ("Random", "Search", "MBPO")]


def train(**words: Any) -> Any:
    return ExaLearner(argv=[], serial=True, progress=False, workflow="fused", **words).run()


def fused(case: str, **others: Any) -> dict[str, Any]:
    """A run of 4 environments that stops after 240 steps."""
    words = parameters(case, total_steps=240, n_envs=4, updates_per_step=0.05, **others)
    on_policy = words["agent"] in ("A2C-v0", "A3C-v0", "PPO-v0", "PQN-v0")
    words.pop("envs_per_actor")
    words.pop("reset_interval", None)  # refused here
    if words["env"] == "ExaMaskedCartPole-v0":
        words["env"] = "CartPole-v1"
    if on_policy:
        words.pop("updates_per_step")
    return words


@pytest.mark.slow
@pytest.mark.parametrize("case", LEARNERS)
def test_a_stopped_run_continues_as_if_nothing_had_happened(case: str, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(**fused(case, run_dir=str(whole)))
    train(**fused(case, run_dir=str(parts)) | {"total_steps": 120})
    train(**fused(case, run_dir=str(parts), checkpoint_interval=1e6))
    summary = summary_of(whole)
    assert summary["timesteps_total"] == 240
    assert summary["updates_total"] > 0
    for row in read_rows(whole / "result.jsonl"):  # before the first update nothing is told
        assert all(value is not None for name, value in row.items() if "loss" in name)
    assert_same(everything_of(parts), everything_of(whole))


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_with_layer_normalisation_the_checkpoint_says_so(precision: str, tmp_path: Path) -> None:
    words = {**SMALL_FUSED, "layer_norm": True, "precision": precision}
    train(**words, run_dir=str(tmp_path / "run"))
    for row in read_rows(tmp_path / "run" / "result.jsonl"):
        assert all(value is not None for name, value in row.items() if "loss" in name)
    newest = find_newest(tmp_path / "run" / "checkpoints")
    assert newest is not None
    assert load_checkpoint(newest).numbers["made_for"]["layer_norm"] == "true"


def weights_of(run: Path) -> np.ndarray:
    newest = find_newest(run / "checkpoints")
    assert newest is not None
    return load_checkpoint(newest).arrays["agent"]["weights"]


@pytest.mark.slow
def test_a_member_of_a_population_is_what_it_would_be_alone(tmp_path: Path) -> None:
    """Whatever its seed, and whatever becomes of the others: one of them diverges."""
    many, points = tmp_path / "many", tmp_path / "points.csv"
    settings = ["1e-4,0.9,5", "1e30,0.9,5", "1e-2,0.9,6", "1e-2,0.8,6"]
    points.write_text("\n".join(["learning_rate,gamma,seed", *settings]))
    train(**SMALL_FUSED, run_dir=str(many), seed=5, sweep=f"@{points}")
    newest = find_newest(many / "checkpoints")
    assert newest is not None
    kept = load_checkpoint(newest).arrays["envs"]
    with (many / "population.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["learning_rate"]) for row in rows] == [
        ("5", "0.0001"),
        ("5", "1e+30"),
        ("6", "0.01"),
        ("6", "0.01"),
    ]
    assert [row["reward_mean"] == "nan" for row in rows] == [False, True, False, False]
    alone = tmp_path / "alone"
    result = train(**SMALL_FUSED, run_dir=str(alone), seed=6, learning_rate=1e-2, gamma=0.9)
    assert float(rows[2]["reward_mean"]) == pytest.approx(result.summary["last_reward_mean"], 1e-3)
    newest = find_newest(alone / "checkpoints")
    assert newest is not None
    for name, array in load_checkpoint(newest).arrays["envs"].items():
        np.testing.assert_allclose(
            kept[name][2].astype(float), array.astype(float), rtol=2e-3, atol=2e-4
        )


@pytest.mark.slow
def test_the_policy_kept_of_a_population_is_the_best_ones(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = SMALL_FUSED | {"total_steps": 16 * 8 * 20, "learning_rate": 5e-3}
    train(**words, run_dir=str(run), n_seeds=3, checkpoint_interval=1e6)
    with (run / "population.csv").open() as file:
        rewards = [float(row["reward_mean"]) for row in csv.DictReader(file)]
    best = int(np.argmax(rewards))
    newest = find_newest(run / "checkpoints")
    assert newest is not None
    checkpoint = load_checkpoint(newest)
    weights, members = checkpoint.arrays["agent"]["weights"], checkpoint.arrays["envs"]
    first_bias = [
        array for array in members.values() if array.dtype == np.float32 and array.shape == (3, 8)
    ]
    held = [array[best] for array in first_bias]
    assert any(_within(weights, row) for row in held)
    assert not any(_within(weights, array[best - 1]) for array in first_bias if array[best].any())


def _within(weights: np.ndarray, row: np.ndarray) -> bool:
    windows = np.lib.stride_tricks.sliding_window_view(weights, len(row))
    return bool((windows == row).all(-1).any())


@pytest.mark.slow
def test_ppo_learns_cartpole_in_one_program(tmp_path: Path) -> None:
    """Two seeds at once, each over 400 in the mean of its last 100 episodes."""
    words = {"agent": "PPO-v0", "env": "CartPole-v1", "n_envs": 8, "total_steps": 100_000}
    result = train(**words, n_seeds=2, run_dir=str(tmp_path / "run"))
    with (tmp_path / "run" / "population.csv").open() as file:
        rewards = [float(row["reward_mean"]) for row in csv.DictReader(file)]
    assert len(rewards) == 2
    assert min(rewards) > 400
    assert result.summary["bound_by"].startswith(("the device", "the host"))


WINDOWS = {"agent": "DQN-v0", "n_step": 20, "learning_starts": 0, "updates_per_step": 0.05}
"""Longer than blocks."""


@pytest.mark.slow
@pytest.mark.parametrize("own", [{}, WINDOWS], ids=["PPO", "windows"])
def test_several_devices_share_the_environments(own: dict[str, Any], tmp_path: Path) -> None:
    """Forced host devices: the same run as on one, up to the order of sums."""
    program = (
        "import sys; from exarl import ExaLearner;"
        "given = dict(argv=[], serial=True, progress=False, workflow='fused');"
        "[ExaLearner(**given, **words).run() for words in eval(sys.argv[1])]"
    )
    flags = "--xla_force_host_platform_device_count=4"
    runs = {devices: tmp_path / f"run{devices}" for devices in (1, 4)}
    common = {**SMALL_FUSED, "normalize_observations": True, **own}
    if own:
        del common["epochs"], common["minibatches"]
    words = [{**common, "devices": n, "run_dir": str(run)} for n, run in runs.items()]
    env = {**os.environ, "XLA_FLAGS": flags}
    subprocess.run([sys.executable, "-c", program, repr(words)], check=True, env=env)
    one, four = map(weights_of, runs.values())
    np.testing.assert_allclose(four, one, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"env": "Acrobot-v1"}, "pure functions"),
        ({"agent": "Random-v0"}, "cannot learn"),
        ({"agent": "DQN-v0", "data_generation": "actor"}, "data_generation"),
        ({"agent": "DQN-v0", "sweep": "priority_scale=0.5,0.6"}, "no number that can be swept"),
        ({"sweep": "gama=0.9,0.99"}, "did you mean 'gamma'"),
        ({"sweep": "gamma=0.9,1.5"}, "gamma must be"),
        ({"sweep": "gamma=0.9:0.99"}, "neither"),
        ({"sweep": "epochs=1,2"}, "no number that can be swept"),
        ({"n_seeds": 2, "eval_interval": 100}, "eval_interval"),
        ({"devices": 999}, "JAX sees"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    words: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    chosen = {"agent": "PPO-v0", "env": "CartPole-v1", "run_dir": str(tmp_path / "run"), **words}
    with pytest.raises(ConfigError, match=reason) as refused:
        train(**chosen)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_nothing_is_compiled_after_the_first_iteration(tmp_path: Path) -> None:
    import logging

    import jax

    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    names = ("jax._src.interpreters.pxla", "jax._src.dispatch")
    for name in names:
        logging.getLogger(name).addHandler(handler)
    with jax.log_compiles():
        train(**SMALL_FUSED, run_dir=str(tmp_path / "run"))
    for name in names:
        logging.getLogger(name).removeHandler(handler)
    compiled = [message for message in messages if "Compiling jit(update)" in message]
    assert len(compiled) == 1, messages
