"""The elastic workflow, on Ray and over a socket, beside RLlib; the environment sleeps 10 ms a step.

    python benchmarks/elastic_speed.py [--actors 4 16] [--seconds 20] [--rllib PYTHON]

EXARL on Ray and RLlib run on a Ray cluster of their own on this machine; `joined` are processes that
join the learner over a socket. Printed for each: seconds from the start of the
process to the end of the first training, steps per second in the steady state, and the efficiency:
steps/s x 0.010 / actors, where 1 is what the environments could do. ``--rllib`` is a Python with
ray[rllib] and torch; without it only EXARL is run. ``async`` under MPI is measured beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEP = 0.01
HERE = Path(__file__).resolve().parent
PORT = 5797
ENV = {**os.environ, "EXARL_JOIN_KEY": secrets.token_hex(32)}


def exarl(workflow: str, actors: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["--agent", "PPO-v0", "--env", "ExaLatency-v0", "--workflow", workflow]
        words += ["--run_dir", str(run), "--wall_time", str(seconds + 8), "--block_steps", "32"]
        joined = workflow == "joined"
        if joined:
            words[words.index("joined")] = "elastic"
            words += ["--listen", str(PORT)]
        elif workflow == "elastic":
            words += ["--n_actors", str(actors)]
        else:
            words += ["--procs", str(actors + 1)]
        started = time.time()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": ENV}
        job = subprocess.Popen([sys.executable, "-m", "exarl", "train", *words], **quiet)
        join = [sys.executable, "-m", "exarl", "actor", "--join", f"127.0.0.1:{PORT}"]
        others = [subprocess.Popen(join, **quiet) for _ in range(actors if joined else 0)]
        if job.wait() or any(other.wait() for other in others):
            raise SystemExit(f"{workflow} failed")
        rows = [json.loads(line) for line in (run / "result.jsonl").read_text().splitlines()]
        ended = (run / "summary.json").stat().st_mtime
        whole = json.loads((run / "summary.json").read_text())["wall_s"]
    trained = next(row for row in rows if row["updates_total"])
    first = ended - whole + trained["time_total_s"] - started
    steady = [row for row in rows if row["time_total_s"] > trained["time_total_s"] + 5]
    a, b = steady[0], steady[-1]
    spent = b["time_total_s"] - a["time_total_s"]
    return {"first_s": first, "steps_per_s": (b["timesteps_total"] - a["timesteps_total"]) / spent}


def rllib(python: str, algo: str, actors: int, seconds: float) -> dict[str, float] | None:
    command = [python, str(HERE / "peers" / "rllib_sleep.py"), "--algo", algo]
    command += ["--runners", str(actors), "--seconds", str(seconds), "--step", str(STEP)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1])) if lines else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--actors", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--workflows", nargs="+", default=["elastic", "joined", "async"])
    parser.add_argument("--rllib")
    options = parser.parse_args()
    print("| | actors | first training after | steps/s | efficiency |\n|---|---|---|---|---|")
    for actors in options.actors:
        results = {
            f"EXARL {workflow} (PPO)": exarl(workflow, actors, options.seconds)
            for workflow in options.workflows
        }
        for algo in ("PPO", "IMPALA") if options.rllib else ():
            found = rllib(options.rllib, algo, actors, options.seconds)
            results[f"RLlib {algo}"] = found or {
                "first_s": float("nan"),
                "steps_per_s": float("nan"),
            }
        for name, found in results.items():
            speed, efficiency = found["steps_per_s"], found["steps_per_s"] * STEP / actors
            row = f"{found['first_s']:.1f} s | {speed:,.0f} | {efficiency:.2f}"
            print(f"| {name} | {actors} | {row} |", flush=True)


if __name__ == "__main__":
    main()
