"""C1: does V-trace rescue an actor-critic whose actors lag behind?

    python benchmarks/claims/vtrace.py [--lags 0 4 16] [--workflows async rma] [--seeds 5] [--words ...]

A3C's optimiser, CartPole cut after 200 steps (which is CartPole-v0), 4 actors and a learner. Lag
0 is ``max_policy_lag 0``. For a lag of n an actor acts with weights that are n versions old beyond
the lag it has anyway: ``Held-v0`` below puts off the weights it is given (they come with each of
its own blocks, every fourth of all). It also lifts the rule that an actor-critic without V-trace
may not lag. Printed: the mean of the last 100 training episodes at the end of each run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from exarl import agents
from exarl.agents.a2c import A3C, A3CConfig
from exarl.agents.base import MakeNetwork
from exarl.config import param
from exarl.types import EnvSpec

ACTORS = 4


@dataclass(frozen=True)
class HeldConfig(A3CConfig):
    """A3C's, and how late weights are used."""

    hold: int = param(0, "an actor uses the weights it was given so many times ago", ge=0)


class Held(A3C):
    """A3C whose actors act with old weights."""

    Config = HeldConfig
    needs_vtrace = False

    def __init__(self, spec: EnvSpec, config: HeldConfig, network: MakeNetwork, seed: int) -> None:
        self._held: deque[np.ndarray] = deque(maxlen=config.hold + 1)
        super().__init__(spec, config, network, seed)

    def set_weights(self, weights: np.ndarray) -> None:
        self._held.append(np.array(weights))
        super().set_weights(self._held[0])


agents.register(id="Held-v0", entry_point=Held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lags", type=int, nargs="+", default=[0, 4, 16])
    parser.add_argument("--workflows", nargs="+", default=["async", "rma"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, of 5 ranks each")
    parser.add_argument("--vtrace", nargs="+", default=["true", "false"])
    parser.add_argument("--words", nargs=argparse.REMAINDER, default=[], help="more parameters")
    options = parser.parse_args()
    print("workflow, forced lag, V-trace | lag measured | last 100 episodes, by seed", flush=True)
    for workflow, lag, vtrace in product(options.workflows, options.lags, options.vtrace):
        with ThreadPoolExecutor(options.jobs) as pool:
            found = list(
                pool.map(
                    lambda seed, case=(workflow, lag, vtrace): run(*case, seed, options),  # type: ignore[misc]
                    range(options.first, options.first + options.seeds),
                )
            )
        rewards = ", ".join(f"{reward:.0f}" for reward, _ in found)
        natural = np.median([lag for _, lag in found])
        good, solved = (sum(reward >= least for reward, _ in found) for least in (150, 195))
        print(
            f"{workflow}, {lag}, {vtrace} | {natural:.1f} + {lag} | {rewards}"
            f" | >= 150: {good}, >= 195: {solved}",
            flush=True,
        )


def run(
    workflow: str, lag: int, vtrace: str, seed: int, options: argparse.Namespace
) -> tuple[float, float]:
    """The last 100 episodes' mean, and the median lag that the run itself counted."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "exarl", "train", "--agent", "vtrace:Held-v0"),
            *("--env", "CartPole-v1", "--n_steps", "200", "--total_steps", str(options.steps)),
            *("--workflow", workflow, "--procs", str(ACTORS + 1), "--seed", str(seed)),
            *("--envs_per_actor", "4", "--block_steps", "16", "--gamma", "0.99"),
            *("--gae_lambda", "1.0"),
            *("--reward_scale", "0.1", "--normalize_advantages", "false"),
            *("--entropy_scale", "0.0", "--hidden", "64,64", "--activation", "tanh"),
            *("--init", "orthogonal", "--output_gain", "0.1", "--vtrace", vtrace),
            *("--hold", str(lag // ACTORS), "--run_dir", f"{folder}/run"),
            *(("--max_policy_lag", "0") if lag == 0 else ()),
            *options.words,
        ]
        here = {
            **os.environ,
            "PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}",
        }
        done = subprocess.run(command, capture_output=True, text=True, env=here, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-800:])
        rows = [json.loads(line) for line in Path(folder, "run/result.jsonl").open()]
    lags = [row["policy_lag_mean"] for row in rows if row.get("policy_lag_mean") is not None]
    return float(rows[-1]["episode_reward_mean"]), float(np.median(lags))


if __name__ == "__main__":
    main()
