"""Every number that can be swept in one program has its effect there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl import ExaLearner
from exarl.errors import ConfigError
from exarl.records.checkpoint import Checkpoint, find_newest, load_checkpoint

pytest.importorskip("jax")

BLOCK = 4 * 8
WORDS = {"hidden": [8], "n_envs": 4, "block_steps": 8, "seed": 3, "learning_rate_updates": 0}
REPLAY = {"learning_starts": BLOCK, "batch_size": 8, "updates_per_step": 0.25}
EVERY = {
    "gamma": (0.9, 0.5),
    "reward_scale": (1.0, 0.5),
    "reward_clip": (10.0, 0.1),
    "learning_rate": (1e-2, 1e-3),
    "learning_rate_end": (1e-3, 0.0),
    "learning_rate_fraction": (1.0, 0.1),
    "adam_eps": (1e-8, 1.0),
    "weight_decay": (0.0, 0.5),
    "max_grad_norm": (0.5, 1e-3),
}
TARGETS = {"tau": (0.1, 0.0), "priority_beta": (0.4, 1.0)}
FRESH = {
    "gae_lambda": (0.9, 0.1),
    "value_scale": (0.5, 2.0),
    "entropy_scale": (0.0, 0.5),
}
NOISE = {
    "policy_learning_rate": (1e-2, 1e-3),
    "noise": (0.4, 0.9),
    "noise_end": (0.4, 0.0),
    "ou_theta": (0.2, 0.9),
}
UNUSED = {
    *("constraint_rate", "constraint_damping", "priority_scale", "updates_per_step"),
    *("clip_rho", "clip_c"),
}
"""What the shape of the program depends on, and corrections of a lag that does not exist in it."""

CASES: dict[str, tuple[dict[str, Any], dict[str, tuple[float, float]]]] = {
    "DQN-v0": (
        {"env": "CartPole-v1", "priority_scale": 0.6, **REPLAY},
        {
            **EVERY,
            **TARGETS,
            "epsilon": (0.9, 0.1),
            "epsilon_min": (0.05, 0.8),
            "epsilon_decay": (0.9, 0.99),
        },
    ),
    "TD3-v0": (
        {"env": "Pendulum-v1", "priority_scale": 0.6, "exploration": "ou", "noise_steps": 64}
        | REPLAY,
        {**EVERY, **TARGETS, **NOISE, "target_noise": (0.2, 0.9), "target_noise_clip": (0.5, 0.1)},
    ),
    "SAC-v0": (
        {"env": "Pendulum-v1", "priority_scale": 0.6, **REPLAY},
        {
            **EVERY,
            **TARGETS,
            "policy_learning_rate": (1e-2, 1e-3),
            "temperature_learning_rate": (1e-2, 1e-3),
            "alpha": (1.0, 0.1),
            "target_entropy": (-1.0, 3.0),
        },
    ),
    "PPO-v0": (
        {"env": "Pendulum-v1", "epochs": 3, "minibatches": 2},
        {
            **EVERY,
            **FRESH,
            "log_std": (0.0, -1.0),
            "clip": (0.2, 0.001),
            "value_clip": (1.0, 0.001),
            "target_kl": (1.0, 1e-6),
        },
    ),
}


def train(run: Path, blocks: int, **words: Any) -> Checkpoint:
    given = {"argv": [], "serial": True, "progress": False, "workflow": "fused"}
    total = {"total_steps": blocks * BLOCK, "run_dir": str(run)}
    ExaLearner(**given, **{**WORDS, **total, **words}).run()
    newest = find_newest(run / "checkpoints")
    assert newest is not None
    return load_checkpoint(newest)


def params_of(checkpoint: Checkpoint, member: int) -> np.ndarray:
    arrays = checkpoint.arrays["envs"]
    names = sorted(name for name in arrays if name.startswith("fused/train/params/"))
    return np.concatenate([arrays[name][member].ravel() for name in names])


@pytest.mark.slow
@pytest.mark.parametrize("id", CASES)
def test_every_number_that_is_swept_has_its_effect(id: str, tmp_path: Path) -> None:
    """Of one member for each number, all of which differ from the first in that alone."""
    words, numbers = CASES[id]
    plain = {name: pair[0] for name, pair in numbers.items()}
    settings = [plain, *({**plain, name: pair[1]} for name, pair in numbers.items())]
    rows = [",".join(plain), *(",".join(map(str, setting.values())) for setting in settings)]
    (tmp_path / "points.csv").write_text("\n".join(rows))
    run = tmp_path / "run"
    swept = {"sweep": f"@{tmp_path / 'points.csv'}", "optimizer": "adamw"}
    kept = train(run, 6, agent=id, **swept, **words)
    first = params_of(kept, 0)
    assert np.isfinite(first).all()
    same = [n for i, n in enumerate(numbers, 1) if np.array_equal(params_of(kept, i), first)]
    assert not same
    longer = train(run, 8, agent=id, **swept, **words)
    assert not np.array_equal(params_of(longer, 0), first)


@pytest.mark.parametrize("id", CASES)
def test_no_number_is_left_out(id: str) -> None:
    from exarl import registry
    from exarl.config import schema_of

    parameters = schema_of(registry.agents.load(id).Config).items()
    floats = {name for name, one in parameters if one.type in (float, float | None)}
    assert floats == {*CASES[id][1], *(floats & UNUSED)}


def test_members_follow_schedules_of_their_own(tmp_path: Path) -> None:
    """A member whose step size falls to 0 by the middle of two blocks learns from one of them."""
    words = {"agent": "A2C-v0", "env": "CartPole-v1", "learning_rate_end": 0.0}
    words["sweep"] = "learning_rate_fraction=0,0.5"
    one, two = train(tmp_path / "one", 1, **words), train(tmp_path / "two", 2, **words)
    np.testing.assert_array_equal(params_of(two, 1), params_of(one, 1))
    assert not np.array_equal(params_of(two, 0), params_of(one, 0))
    np.testing.assert_array_equal(params_of(one, 0), params_of(one, 1))


@pytest.mark.parametrize("id", ["DQN-v0", pytest.param("TD3-v0", marks=pytest.mark.slow)])
def test_a_member_without_tau_copies_its_target_at_the_interval(id: str, tmp_path: Path) -> None:
    words = {**CASES[id][0], "agent": id, "tau": 0.0, "target_update_interval": 5}
    kept = train(tmp_path / "plain", 4, n_seeds=2, **words)
    swept = train(tmp_path / "swept", 4, sweep="tau=0,0.1", **words)
    np.testing.assert_allclose(params_of(swept, 0), params_of(kept, 0), rtol=1e-4, atol=1e-5)
    assert not np.allclose(params_of(swept, 1), params_of(kept, 0), rtol=1e-4, atol=1e-5)


def test_a_sweep_that_would_have_no_effect_is_refused(tmp_path: Path) -> None:
    words = {"agent": "A2C-v0", "env": "CartPole-v1", "sweep": "weight_decay=0,0.1"}
    with pytest.raises(ConfigError, match="'adam' has no weight_decay"):
        train(tmp_path / "run", 1, **words)
