"""C2 to C5: which agent learns faster, and does prioritised replay help?

    python benchmarks/claims/agents.py [--claim C2 C3 C4 C5] [--first 1] [--seeds 5] [--jobs 2]

C2: A2C, A3C and DQN in CartPole cut after 200 steps (which is CartPole-v0), the same number of
steps: do they reach 200? C3: A2C and A3C against DQN with an LSTM in ExaBoosterDiscrete-v0, the same
discount. C4: TD3 against DDPG, the same settings, Pendulum-v1 and LunarLanderContinuous-v3. C5: DDPG
with priorities and without, steps until an evaluation reaches the threshold. Runs whose result stands
in ``--out DIR`` are not made again.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "learning"))
from run import interquartile_mean, judged, kept, steps_to

SHORT = ["--n_steps", "200"]
LANDER = (200.0, 150_000, 25)
BOOSTER = (-25.0, 20_000, 40)
# name: agent/environment, (threshold, steps, evaluations), other words
CASES: dict[str, dict[str, tuple[str, tuple[float, int, int], list[str]]]] = {
    "C2": {
        "A2C": ("A2C-v0/CartPole-v1", (200, 100_000, 25), SHORT),
        "A3C": (
            "A3C-v0/CartPole-v1",
            (200, 100_000, 25),
            [*SHORT, "--workflow", "async", "--procs", "3"],
        ),
        "DQN": ("DQN-v0/CartPole-v1", (200, 100_000, 25), SHORT),
    },
    "C3": {
        "A2C": ("A2C-v0/ExaBoosterDiscrete-v0", BOOSTER, ["--gamma", "0.9"]),
        "A3C": (
            "A3C-v0/ExaBoosterDiscrete-v0",
            BOOSTER,
            ["--gamma", "0.9", "--workflow", "async", "--procs", "3"],
        ),
        "DQN, LSTM": (
            "DQN-v0/ExaBoosterDiscrete-v0",
            BOOSTER,
            ["--gamma", "0.9", "--model_type", "LSTM"],
        ),
    },
    "C4": {
        "DDPG": ("DDPG-v0/Pendulum-v1", (-200, 12_000, 48), []),
        "TD3": ("TD3-v0/Pendulum-v1", (-200, 12_000, 48), []),
        "DDPG, lander": ("DDPG-v0/LunarLanderContinuous-v3", LANDER, []),
        "TD3, lander": ("TD3-v0/LunarLanderContinuous-v3", LANDER, []),
    },
    "C5": {
        "uniform": ("DDPG-v0/Pendulum-v1", (-200, 12_000, 48), []),
        "prioritised": ("DDPG-v0/Pendulum-v1", (-200, 12_000, 48), ["--priority_scale", "0.6"]),
        "uniform, lander": ("DDPG-v0/LunarLanderContinuous-v3", LANDER, []),
        "prioritised, lander": (
            "DDPG-v0/LunarLanderContinuous-v3",
            LANDER,
            ["--priority_scale", "0.6"],
        ),
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--claim", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--only", nargs="+", help="of the claim's cases, these")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--out", type=Path, default=Path("claims_results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for claim in options.claim:
        print(f"{claim}: case | threshold | reward, IQM [range] | reached | steps to it | seconds")
        for name, case in CASES[claim].items():
            if options.only and name not in options.only:
                continue
            with ThreadPoolExecutor(options.jobs) as pool:
                seeds = range(options.first, options.first + options.seeds)
                runs = list(pool.map(lambda seed, case=case: run(case, seed, options.out), seeds))  # type: ignore[misc]
            print(line(name, case[1][0], runs), flush=True)


def run(
    case: tuple[str, tuple[float, int, int], list[str]], seed: int, out: Path
) -> dict[str, Any]:
    """One case with one seed; the same run serves every claim that has it."""
    task, (_, steps, evaluations), words = case
    name = "_".join([task.replace("/", "_"), *words, str(seed)]).replace("--", "")
    folder = out / name
    return kept(folder, lambda: judged(task, seed, steps, folder, words, evaluations))


def line(name: str, threshold: float, runs: list[dict[str, Any]]) -> str:
    """A row of the table."""
    rewards = [r["best"] for r in runs if r.get("best") is not None]
    if not rewards:
        return f"{name} | failed"
    reached = [steps_to(r, threshold) for r in runs]
    shown = ", ".join(f"{s:,.0f}" if np.isfinite(s) else "never" for s in reached)
    return (
        f"{name} | {threshold:g} | {interquartile_mean(rewards):.1f} [{min(rewards):.1f},"
        f" {max(rewards):.1f}] | {np.isfinite(reached).sum()} of {len(runs)} | {shown}"
        f" | {np.median([r['seconds'] for r in runs if 'seconds' in r]):.0f}"
    )


if __name__ == "__main__":
    main()
