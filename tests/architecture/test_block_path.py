"""``python -m benchmarks.block_path`` finds what it looks for under its present name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from benchmarks import block_path
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.phys2d.cartpole import CartPoleFunctional

from exarl.agents.agent import NetworkAgent
from exarl.types import ArraySpec
from exarl.workflows.sync import LocalActors


@pytest.mark.parametrize(
    ("function", "mark"),
    [
        (CartPoleEnv.step, block_path.STEP),
        (NetworkAgent.train, block_path.TRAIN),
        (CartPoleFunctional.initial, block_path.RESET),
        (jax.device_get, block_path.FETCH),
        (NetworkAgent.train_in_team, ""),
        (LocalActors.roll, ""),
    ],
)
def test_calls_that_begin_and_end_a_measurement(function: Callable[..., Any], mark: str) -> None:
    assert block_path.mark_of(function.__code__) == mark


@pytest.mark.parametrize(
    "value",
    [np.zeros(1), jax.numpy.zeros(1), {"a": [np.zeros(1)]}, (1, np.zeros(1)), bytes(1000)],
)
def test_what_holds_data(value: object) -> None:
    assert block_path.holds_data(value)


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        None,
        "x" * 1000,
        np.zeros(()),
        bytes(999),
        [[[np.zeros(1)]]],
        ArraySpec((3,), "f4"),
        np.ndarray,
    ],
)
def test_what_holds_none(value: object) -> None:
    assert not block_path.holds_data(value)
