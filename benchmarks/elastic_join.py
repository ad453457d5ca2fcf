"""Simulations of two ranks that join over a socket: one killed, one late and from another network.

    sudo python benchmarks/elastic_join.py [--seconds 60] [--step 0.01]

The learner listens; three simulations, each `mpiexec -n 2 exarl actor --join ...`, join it. After a
third of the time all ranks of one are killed by SIGKILL; after half of it another simulation joins
from a network namespace of its own, joined by a cable (needs root and iproute2; without them, from
this network). Both ranks of a simulation take part in every step, and every observation carries a
stamp that is given out once in the world. The replay holds the whole run: after the run the stamps in
the last checkpoint are counted, so a block trained twice would show.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from elastic_kill import STEP, Stamped
from safetensors.numpy import load_file

NODE, HERE, THERE = "exarl-late", "10.78.0.1", "10.78.0.2"
BIN = Path(sys.executable).parent
RANKS = 2


class Together(Stamped):
    """Every rank holds a copy, and a step ends when all have taken it."""

    def __init__(self, comm: Any = None) -> None:
        super().__init__()
        self._comm = comm

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        found = super().step(action)
        taken = self._comm.allreduce(1)
        assert taken == RANKS
        return found


def build() -> bool:
    """Another network; whether that is permitted."""
    tear_down()
    steps = (
        f"ip netns add {NODE}",
        f"ip link add exarl-h type veth peer name exarl-t netns {NODE}",
        f"ip addr add {HERE}/24 dev exarl-h",
        "ip link set exarl-h up",
        f"ip -n {NODE} addr add {THERE}/24 dev exarl-t",
        f"ip -n {NODE} link set exarl-t up",
        f"ip -n {NODE} link set lo up",
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        for step in steps:
            subprocess.run(step.split(), check=True, **quiet)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def tear_down() -> None:
    for command in (f"ip netns del {NODE}", "ip link del exarl-h"):
        subprocess.run(command.split(), stderr=subprocess.DEVNULL, check=False)


def ranks_below(root: int) -> list[int]:
    """``root`` and all processes that descend from it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
            children.setdefault(int(rest.split()[1]), []).append(int(head.split(" ", 1)[0]))
        except (OSError, ValueError):
            continue
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--step", type=float, default=0.01)
    options = parser.parse_args()
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    env[STEP] = str(options.step)
    apart = build()
    jobs: list[subprocess.Popen[bytes]] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            words = ["--workflow", "elastic", "--listen", f"{HERE}:0" if apart else "0", "--env"]
            words += ["elastic_join:Together-v0", "--process_per_env", str(RANKS)]
            words += ["--block_steps", "16", "--run_dir", str(run), "--keep_checkpoints", "1"]
            words += ["--wall_time", str(options.seconds), "--replay_capacity", "400000"]
            words += ["--batch_size", "32", "--updates_per_step", "0.1"]
            log = (Path(folder) / "log").open("wb")
            command = [sys.executable, "-m", "exarl", "train", *words]
            learner = subprocess.Popen(command, env=env, stdout=log, stderr=log)
            jobs.append(learner)
            join = invited(Path(folder) / "log", learner)
            jobs += [subprocess.Popen(join, env=env, stdout=log, stderr=log) for _ in range(3)]
            while not (run / "progress.csv").exists() and learner.poll() is None:
                time.sleep(0.1)
            time.sleep(options.seconds / 3)
            for pid in ranks_below(jobs[1].pid):
                os.kill(pid, signal.SIGKILL)
            time.sleep(options.seconds / 6)
            away = ["ip", "netns", "exec", NODE] if apart else []
            join = [join[0], "-localhost", THERE, *join[1:]] if apart else join
            jobs.append(subprocess.Popen([*away, *join], env=env, stdout=log, stderr=log))
            codes = [job.wait() for job in jobs]
            log.close()
            text = (Path(folder) / "log").read_text()
            show(run, text, codes, apart)
    finally:
        for job in jobs:
            if job.poll() is None:
                for pid in ranks_below(job.pid):
                    os.kill(pid, signal.SIGKILL)
        tear_down()


def invited(log: Path, learner: subprocess.Popen[bytes]) -> list[str]:
    """The command that the learner prints."""
    while learner.poll() is None:
        if found := re.search(r"simulations join with: mpiexec -n 2 exarl (.*)\n", log.read_text()):
            return [
                str(BIN / "mpiexec"),
                "-n",
                "2",
                sys.executable,
                "-m",
                "exarl",
                *found[1].split(),
            ]
        time.sleep(0.1)
    raise SystemExit(log.read_text())


def show(run: Path, log: str, codes: list[int], apart: bool) -> None:
    summary = json.loads((run / "summary.json").read_text())
    newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    rows = load_file(newest / "agent.safetensors")
    stamps = next(a for name, a in rows.items() if name.endswith("replay/rows/observation"))
    stamps = stamps.reshape(-1, 2)
    print("\n".join(line for line in log.splitlines() if "actor" in line))
    found = {
        "another_network": apart,
        "exit_codes": codes,  # of the learner, the killed one, two more, the late one
        "env_failures": summary["env_failures"],
        "steps": summary["timesteps_total"],
        "steps_in_replay": len(stamps),
        "simulations_in_replay": len(np.unique(stamps[:, 0])),
        "trained_twice": len(stamps) - len(np.unique(stamps, axis=0)),
        "blocks": summary["blocks"],
        "steps_per_s": summary["steps_per_s"],
    }
    print(json.dumps(found))


gymnasium.register("Together-v0", "elastic_join:Together")
if __name__ == "__main__":
    main()
