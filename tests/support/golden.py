"""Golden checkpoints: small runs that every later version of EXARL continues.

``python -m tests.support.golden`` trains those of the present format again, into
``tests/data/checkpoints/format-N``. After a release they are only added to: a checkpoint that was
written once has to load for as long as ``docs/runs.md`` promises.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from exarl import ExaLearner
from exarl.records.checkpoint import FORMAT, load_newest

from .jobs import EXARL
from .matrix import SMALL_FUSED, parameters

DATA = Path(__file__).parents[1] / "data" / "checkpoints"
STEPS = 100
"""Environment steps after which a golden run stopped; those of the fused one are ``FUSED_STEPS``."""
FUSED_STEPS = 256
CASES: dict[str, dict[str, Any]] = {
    "a3c-lstm": parameters("A3C, LSTM", total_steps=STEPS, units=4),
    "ddpg": parameters("DDPG", total_steps=STEPS, hidden=[4]),
    "dqn-prioritised": parameters("DQN, prioritised", total_steps=STEPS, hidden=[4]),
    "fused": {**SMALL_FUSED, "workflow": "fused", "total_steps": FUSED_STEPS},
    "ppo": parameters("PPO, discrete", total_steps=STEPS, hidden=[4]),
    "sac": parameters("SAC, box", total_steps=STEPS, hidden=[4]),
    "td3": parameters("TD3", total_steps=STEPS, hidden=[4]),
}
ON_RANKS: dict[str, dict[str, Any]] = {
    "a2c-two-learners": {
        **parameters("A2C, box", total_steps=STEPS, hidden=[4]),
        "workflow": "async",
        "learner_procs": 2,
    },
}
"""Runs on four ranks, with blocks under way in the checkpoint."""
KEPT = ("config.json", "progress.csv", "result.jsonl", "summary.json")


def write_golden(name: str, target: Path) -> None:
    """Train the run ``name`` and keep of it what continuing needs, and nothing of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        if name in CASES:
            ExaLearner(argv=[], serial=True, progress=False, run_dir=str(run), **CASES[name]).run()
        else:
            pairs = [(f"--{key}", json.dumps(value)) for key, value in ON_RANKS[name].items()]
            words = [word.strip('"') for pair in pairs for word in pair]
            subprocess.run([*EXARL, "train", *words, "--procs", "4", "--run_dir", run], check=True)
            newest = load_newest(run / "checkpoints")
            assert newest and newest.arrays["pending"], "no block was under way; try again"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in KEPT:
            shutil.copy(run / file, target)
        newest = max((run / "checkpoints").iterdir())
        shutil.copytree(newest, target / "checkpoints" / newest.name)
        manifest = json.loads((run / "manifest.json").read_text())
        kept = {"layout": manifest["layout"]}
        (target / "manifest.json").write_text(json.dumps(kept, indent=2) + "\n")
        stored = json.loads((target / "config.json").read_text())
        del stored["origins"]  # names folders of this machine
        stored["learner"]["run_dir"] = None
        (target / "config.json").write_text(json.dumps(stored, indent=2) + "\n")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or (*CASES, *ON_RANKS):
        write_golden(chosen, DATA / f"format-{FORMAT}" / chosen)
