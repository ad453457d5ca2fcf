"""C12: PPO with a CNN on Tetris images, cores x environments, learner on the CPU against the GPU.

    python benchmarks/claims/tetris_frames.py [--platforms cpu cuda] [--grid 1-1 1-16 2-16]
                                              [--seconds 10] [--fused 256 1024]

``2-16`` is 16 environments on two cores that act (async, with a learner beside them); ``1-16`` is all
in one process. Frames/s of the second half of each ``exarl train``. ``--fused`` adds runs
with so many environments on the device itself. Platforms run side by side: give each cores enough.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TETRIS = ["--agent", "PPO-v0", "--env", "ExaTetris-v0", "--model_type", "CNN"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--platforms", nargs="+", default=["cpu"])
    parser.add_argument("--grid", nargs="+", default=["1-1", "1-16", "2-16"])
    parser.add_argument("--fused", type=int, nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    columns = [f"{platform}, frames/s" for platform in options.platforms]
    print(f"| cores-environments | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    cases = {name: on_cores(*map(int, name.split("-"))) for name in options.grid}
    cases |= {f"fused, {count:,}": on_device(count) for count in options.fused}
    for name, words in cases.items():
        with ThreadPoolExecutor() as pool:
            rates = list(
                pool.map(lambda p, w=words: rate(w, p, options.seconds), options.platforms)  # type: ignore[misc]
            )
        print(f"| {name} | {' | '.join(f'{found:,.0f}' for found in rates)} |", flush=True)


def on_cores(cores: int, environments: int) -> list[str]:
    each = ["--envs_per_actor", str(environments // cores)]
    if cores == 1:
        return [*each, "--workflow", "sync"]
    return [*each, "--workflow", "async", "--procs", str(cores + 1)]


def on_device(environments: int) -> list[str]:
    return ["--workflow", "fused", "--n_envs", str(environments), "--block_steps", "32"]


def rate(words: list[str], platform: str, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "exarl", "train", *TETRIS, *words, "--run_dir", str(run)]
        command += ["--wall_time", str(seconds + 8), "--checkpoint_interval", "1000"]
        env = {**os.environ, "JAX_PLATFORMS": platform}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        rows = [json.loads(line) for line in (run / "result.jsonl").read_text().splitlines()]
    half = rows[0]["time_total_s"] + (rows[-1]["time_total_s"] - rows[0]["time_total_s"]) / 2
    late = [row for row in rows if row["time_total_s"] >= half]
    steps = float(late[-1]["timesteps_total"] - late[0]["timesteps_total"])
    return steps / max(late[-1]["time_total_s"] - late[0]["time_total_s"], 1e-9)


if __name__ == "__main__":
    main()
