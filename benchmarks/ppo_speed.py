"""PPO on the same work as its peers, side by side: steps/s, and seconds to a mean of 475.

    python benchmarks/ppo_speed.py --peer-python PYTHON [--rounds 3]
                                   [--cleanrl-script CLEANRL/cleanrl/ppo.py]

CartPole-v1, 8 environments in one process, 128 steps, 4 epochs, 4 minibatches, MLP [64, 64]; in turns,
one thread each; Stable-Baselines3 and, with your own copy of its ppo.py, CleanRL. Then, with each
side's own settings (ours packaged, theirs the same as above), the time from the start of the process to
a mean of 475 over 100 training episodes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SAME_WORK = (
    *("--agent", "PPO-v0", "--env", "CartPole-v1", "--envs_per_actor", "8", "--block_steps", "128"),
    *("--epochs", "4", "--minibatches", "4", "--learning_rate", "2.5e-4", "--gamma", "0.99"),
    *("--gae_lambda", "0.95", "--entropy_scale", "0.01", "--hidden", "64,64"),
    *("--learning_rate_updates", "0"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer-python", required=True, help="a Python with stable_baselines3")
    parser.add_argument("--cleanrl-script", help="your copy of CleanRL's cleanrl/ppo.py")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    peers = Path(__file__).parent / "peers"
    sb3 = [options.peer_python, peers / "sb3_ppo.py"]
    names = ["EXARL", "SB3"] + ["CleanRL"] * bool(options.cleanrl_script)
    speeds: dict[str, list[float]] = {name: [] for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(1, options.rounds + 1):
        speeds["EXARL"].append(ours(seed, "--total_steps", "200000", *SAME_WORK)[0])
        speeds["SB3"].append(theirs(sb3, seed)["steps_per_s"])
        times["EXARL"].append(
            ours(
                seed,
                *("--agent", "PPO-v0", "--env", "CartPole-v1", "--total_steps", "500000"),
                *("--target_reward", "475"),
            )[1]
        )
        found = theirs([*sb3, "--solve"], seed)
        times["SB3"].append(found.get("wall_from_start") or float("nan"))
        if options.cleanrl_script:
            runner = peers / "cleanrl_ppo.py"
            command = [options.peer_python, runner, "--script", options.cleanrl_script]
            found = theirs(command, seed)
            speeds["CleanRL"].append(found["steps_per_s"])
            times["CleanRL"].append(found.get("wall_from_start") or float("nan"))
    for name, values in (("steps/s", speeds), ("seconds to 475", times)):
        print(f"{name}: " + ", ".join(f"{k} {[round(x, 1) for x in v]}" for k, v in values.items()))
    for name in names[1:]:
        faster = statistics.median(speeds["EXARL"]) / statistics.median(speeds[name])
        sooner = statistics.median(times["EXARL"]) / statistics.median(times[name])
        print(f"EXARL / {name}: {faster:.1f} in steps/s, {sooner:.2f} in seconds to 475")


def ours(seed: int, *words: str) -> tuple[float, float]:
    """Steps/s over the second half of the run, and the seconds the whole process took."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        subprocess.run(
            [
                *(sys.executable, "-m", "exarl", "train", "--serial", "--seed", str(seed)),
                *("--run_dir", f"{folder}/run", "--checkpoint_interval", "3600", *words),
            ],
            check=True,
            capture_output=True,
        )
        seconds = time.monotonic() - started
        rows = [json.loads(line) for line in Path(folder, "run/result.jsonl").open()]
    middle, last = rows[len(rows) // 2], rows[-1]
    steps = last["timesteps_total"] - middle["timesteps_total"]
    return steps / (last["time_total_s"] - middle["time_total_s"]), seconds


def theirs(command: list[object], seed: int) -> dict[str, float]:
    """What a peer's benchmark prints, as one JSON object."""
    words = [*map(str, command), "--seed", str(seed)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))
    return found


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
