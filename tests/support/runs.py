"""Run directories written in a moment, with everything a training would leave that a reader wants."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exarl.records.directory import RunDirectory

SETTINGS: dict[str, dict[str, Any]] = {
    "learner": {
        "agent": "DQN-v0",
        "env": "CartPole-v1",
        "workflow": "sync",
        "total_steps": 1000,
        "reward_window": 100,
        "seed": 0,
        "output_dir": "out",
        "run_dir": None,
    },
    "agent": {"gamma": 0.99, "learning_rate": 0.001},
    "model": {"hidden": [64, 128]},
}


def write_run(
    path: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    rows: int = 40,
    world: int = 1,
    ended: bool = True,
    level: float = 100.0,
    **columns: Any,
) -> RunDirectory:
    """A run whose reward rises to ``level``; ``changes`` ("agent.gamma": 0.9) are set by flags."""
    changes = changes or {}
    config = {family: dict(values) for family, values in SETTINGS.items()}
    origins = {f"{f}.{key}": "default" for f, values in config.items() for key in values}
    for key, value in changes.items():
        family, _, name = key.partition(".")
        config[family][name] = value
        origins[key] = "command line"
    layout = {"world": world, "learners": 1, "actors": max(1, world - 1)}
    manifest = {
        "started": "2026-11-16T10:00:00+0000",
        "host": "node7",
        "cores": 4,
        "packages": {"exarl": "0.1.0", "jax": "0.10.2"},
        "commit": None,
        "seed": config["learner"]["seed"],
        "layout": layout,
    }
    run = RunDirectory(path)
    run.create({**config, "origins": origins}, manifest)
    made = [make_row(i + 1, level * (1 - math.exp(-(i + 1) / 10)), **columns) for i in range(rows)]
    run.result.write_text("".join(json.dumps(row) + "\n" for row in made))
    if ended:
        run.summary.write_text(json.dumps(make_summary(made[-1])))
    return run


def make_row(iteration: int, reward: float, **columns: Any) -> dict[str, Any]:
    return {
        "training_iteration": iteration,
        "timesteps_total": 25 * iteration,
        "episodes_total": iteration,
        "episode_reward_mean": reward,
        "episode_reward_min": reward - 5,
        "episode_reward_max": reward + 5,
        "episode_len_mean": reward,
        "updates_total": 5 * iteration,
        "env_restarts": 0,
        **{f"env_{kind}": 0 for kind in ("raise", "crash", "timeout", "nan", "shape")},
        "time_total_s": 0.5 * iteration,
        "steps_per_s": 50.0,
        "updates_per_s": 10.0,
        "policy_lag_mean": 0.0,
        "policy_lag_max": 0,
        "loss": 1.0 / iteration,
        **columns,
    }


def make_summary(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "reason": "total_steps",
        **{key: row[key] for key in ("timesteps_total", "episodes_total", "updates_total")},
        "training_iteration": row["training_iteration"],
        "wall_s": row["time_total_s"],
        "steps_per_s": 50.0,
        "updates_per_s": 10.0,
        "best_reward_mean": row["episode_reward_mean"],
        "best_evaluation": None,
        "last_evaluation": None,
        "last_reward_mean": row["episode_reward_mean"],
        "env_restarts": row["env_restarts"],
        "time_split": {
            "learner": {"learn": 0.6, "wait": 0.3, "other": 0.1},
            "actors": {"env": 0.8, "inference": 0.2, "send": 0.0, "wait": 0.0, "restart": 0.0},
        },
        "bound_by": "the environment (80% of the time); add actors (--procs N)",
    }
