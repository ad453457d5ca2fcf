"""Acting is light: what a process must not have imported, seen in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exarl import registry

MPIEXEC = Path(sys.executable).parent / "mpiexec"
LEARNING = {"jax", "jaxlib", "optax"}
SHOWING = {"matplotlib", "rich", "tensorboard", "ray", "plotly", "optuna", "zmq"}
HEAVY = {"numpy", "gymnasium", "mpi4py", "msgspec", "safetensors"} | LEARNING | SHOWING
WORKFLOWS = [id for id in ("sync", "async", "rma", "seed") if id in registry.workflows]

JOB = '''
"""A tiny run whose ranks write down what they have imported."""
import json, os, sys
from pathlib import Path
import exarl
import gymnasium
import numpy as np


def note(place):
    role = os.environ.get("PMI_RANK", "0")
    Path(f"{place}_{role}.json").write_text(json.dumps(sorted(sys.modules)))


class Spy(gymnasium.Env):
    """Episodes of eight steps; notes the modules at its last step and at its end."""
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 8:
            note("step")
        return np.zeros(3, np.float32), 1.0, self.steps == 8, False, {}

    def close(self):
        note("close")


exarl.register("env", "Spy-v0", Spy)
learner = exarl.ExaLearner(env="Spy-v0", hidden=[4], learning_starts=8, block_steps=8,
                           checkpoint_interval=0)
learner.run()
note("end")
'''


def modules_after(code: str) -> set[str]:
    """The modules a fresh interpreter has after ``code``."""
    script = f"{code}\nimport sys, json\nsys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr))


def run_job(folder: Path, *words: str, ranks: int | None = None) -> dict[str, set[str]]:
    """What each rank had imported at each place, by ``place_rank``."""
    (folder / "job.py").write_text(JOB)
    command = [sys.executable, "job.py", "--total_steps", "64", *words]
    if ranks is not None:
        command = [str(MPIEXEC), "-n", str(ranks), *command]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PMI_", "OMPI_", "SLURM_"))}
    environ = {**kept, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return {p.stem: set(json.loads(p.read_text())) for p in folder.glob("*_[0-9].json")}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import exarl", HEAVY),
        ("import exarl; dir(exarl); exarl.__version__", HEAVY),
        ("import exarl.cli.main", HEAVY),
        ("import exarl.registry; exarl.registry.agents.ids()", HEAVY),
        ("import exarl.agents.dqn, exarl.networks.mlp", LEARNING | SHOWING | {"gymnasium"}),
        ("import exarl; exarl.ExaLearner", LEARNING | SHOWING | {"mpi4py.MPI"}),
        (
            "import exarl.envs.external.remote, exarl.envs.external.serve, exarl.cli.serve",
            LEARNING | SHOWING,
        ),
        ("import exarl.workflows.sync, exarl.run.experiment", LEARNING | SHOWING | {"mpi4py.MPI"}),
    ],
)
def test_an_import_leaves_what_is_heavy_out(code: str, absent: set[str]) -> None:
    assert not modules_after(code) & absent


@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside this Python")
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_an_acting_rank_never_imports_what_learning_needs(tmp_path: Path, workflow: str) -> None:
    """Rank 0 learns, rank 1 acts, rank 2 only takes part in the environment's steps."""
    words = ["--process_per_env", "2", "--workflow", workflow]
    seen = run_job(tmp_path, *words, ranks=3)
    assert {"step_1", "close_1", "end_0", "end_1", "end_2"} <= seen.keys()
    assert "jax" in seen["end_0"], "the learner shows that there was something to see"
    for place in ("step_1", "close_1", "end_1", "end_2"):
        assert "mpi4py.MPI" in seen[place]
        assert not seen[place] & (LEARNING | SHOWING), place


def test_one_rank_alone_starts_no_mpi(tmp_path: Path) -> None:
    seen = run_job(tmp_path)
    assert {"step_0", "close_0", "end_0"} <= seen.keys()
    assert "jax" in seen["end_0"]
    for modules in seen.values():
        assert "mpi4py.MPI" not in modules
        assert "ray" not in modules


def test_evaluating_needs_no_jax(tmp_path: Path) -> None:
    words: list[Any] = ["--total_steps", "32", "--run_dir", "run", "--hidden", "[4]"]
    environ = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "exarl", "train", *words]
    subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=True)
    run = tmp_path / "run"
    code = f"from exarl.cli.main import main; main(['evaluate', {str(run)!r}, '--episodes', '1'])"
    assert not modules_after(code) & (LEARNING | SHOWING | {"mpi4py.MPI"})
