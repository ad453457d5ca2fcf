"""Actors of the elastic workflow killed one after another: does the run finish, and is it honest?

    python benchmarks/elastic_kill.py [--actors 8] [--every 5] [--seconds 60] [--step 0.01]

Trains DQN on an environment that sleeps, with one actor killed by SIGKILL every few seconds. Every
observation carries a stamp that is given out once in the world, and the replay holds the whole run:
after the run the stamps in the last checkpoint are counted, so a block trained twice would show.
Prints the restarts counted by the run and the kills made, and steps/s beside those without kills.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from safetensors.numpy import load_file

STEP = "EXARL_BENCH_STEP"


class Stamped(gymnasium.Env[Any, Any]):
    """Sleeps, and shows (who, how many): two numbers that together are seen once."""

    observation_space = gymnasium.spaces.Box(0, 2**24, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._who = float(random.SystemRandom().randrange(2**24))
        self._count = 0
        self._pause = float(os.environ.get(STEP, "0.01"))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._left = 200
        return self._stamp(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        time.sleep(self._pause)
        self._left -= 1
        return self._stamp(), 1.0, False, not self._left, {}

    def _stamp(self) -> np.ndarray:
        self._count += 1
        return np.array([self._who, self._count], np.float32)


def actors_below(root: int) -> list[int]:
    """The processes of actors that descend from ``root``."""
    parents, names = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
            pid = int(head.split(" ", 1)[0])
            parents[pid] = int(rest.split()[1])
            names[pid] = stat.with_name("cmdline").read_bytes().decode(errors="replace")
        except (OSError, ValueError):
            continue

    def descends(pid: int) -> bool:
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return [
        pid for pid, name in names.items() if name.startswith("ray::ActorHost") and descends(pid)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--actors", type=int, default=8)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--step", type=float, default=0.01)
    options = parser.parse_args()
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent / "src"), os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        STEP: str(options.step),
    }
    for kills in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            words = ["--workflow", "elastic", "--n_actors", str(options.actors), "--env"]
            words += ["elastic_kill:Stamped-v0", "--block_steps", "16", "--run_dir", str(run)]
            words += ["--wall_time", str(options.seconds), "--replay_capacity", "400000"]
            words += ["--batch_size", "32", "--updates_per_step", "0.1", "--keep_checkpoints", "1"]
            started = time.monotonic()
            job = subprocess.Popen(
                [sys.executable, "-m", "exarl", "train", *words],
                env=env,
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            killed = 0
            while not (run / "progress.csv").exists() and job.poll() is None:
                time.sleep(0.1)
            start = time.monotonic() - started
            while kills and job.poll() is None:
                time.sleep(options.every)
                if found := actors_below(job.pid):
                    os.kill(random.choice(found), signal.SIGKILL)
                    killed += 1
            code = job.wait()
            summary = json.loads((run / "summary.json").read_text())
            newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
            rows = load_file(newest / "agent.safetensors")
            stamps = next(a for name, a in rows.items() if name.endswith("replay/rows/observation"))
            stamps = stamps.reshape(-1, 2)
            twice = len(stamps) - len(np.unique(stamps, axis=0))
            print(
                json.dumps(
                    {
                        "kills": killed,
                        "exit": code,
                        "restarts_counted": summary["env_restarts"],
                        "steps": summary["timesteps_total"],
                        "steps_in_replay": len(stamps),
                        "trained_twice": int(twice),
                        "steps_per_s": summary["steps_per_s"],
                        "blocks": summary["blocks"],
                        "start_s": round(start, 1),
                    }
                )
            )


gymnasium.register("Stamped-v0", "elastic_kill:Stamped")
if __name__ == "__main__":
    main()
