"""Slow steps are trained as often as they happen: no actor is left out for coming late."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.jobs import LIGHT, run, train

MEAN, SIGMA, BLOCK, STEPS = 0.001, 1.5, 8, 4000
LATENCY = ("--env", "ExaLatency-v0", "--mean_seconds", MEAN, "--distribution", "lognormal",
           "--sigma", SIGMA, "--block_steps", BLOCK, "--total_steps", STEPS,
           "--learning_rate", 1e-6)  # fmt: skip  # so that it does not diverge
SEEDS = (1, 2, 3)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The two-sample statistic of Kolmogorov and Smirnov."""
    points = np.concatenate([one, other])
    mine, theirs = (np.searchsorted(np.sort(s), points, "right") / len(s) for s in (one, other))
    return float(np.abs(mine - theirs).max())


def critical(n: int, m: int, level: float = 1e-4) -> float:
    """What the statistic exceeds with probability ``level`` when the distributions are the same."""
    return math.sqrt(-math.log(level / 2) / 2 * (n + m) / (n * m))


def draws(count: int, seed: int = 0) -> np.ndarray:
    """Step times as ExaLatency means them, drawn directly."""
    location = math.log(MEAN) - SIGMA**2 / 2
    return np.random.default_rng(seed).lognormal(location, SIGMA, count)


def test_the_statistic_finds_a_learner_that_drops_the_slowest_fifth() -> None:
    blocks = draws(STEPS).reshape(-1, BLOCK)
    quick = blocks[np.argsort(blocks.sum(1))][: len(blocks) * 4 // 5].ravel()
    reference = draws(20 * STEPS, seed=1)
    assert distance(quick, reference) > critical(len(quick), len(reference))
    assert distance(blocks.ravel(), reference) < critical(STEPS, len(reference))


@pytest.mark.slow
@pytest.mark.parametrize("workflow", ["async", "rma", "seed"])
def test_trained_steps_are_distributed_like_sampled_ones(tmp_path: Path, workflow: str) -> None:
    reference, found = draws(20 * STEPS), []
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        words = (*LIGHT, "--agent", "Recorder-v0", *LATENCY, "--seed", seed, "--procs", 5)
        subject = {"folder": str(folder)}
        run(train(folder / "run", *words, "--workflow", workflow), subject=subject).ok()
        trained = np.fromfile(folder / "trained.f32", np.float32)
        assert len(trained) >= STEPS
        assert distance(trained, reference) < critical(len(trained), len(reference))
        found.append(trained)
    together = np.concatenate(found)
    assert distance(together, reference) < critical(len(together), len(reference))
