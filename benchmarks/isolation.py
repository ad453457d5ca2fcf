"""What a step costs more when its environment has a process of its own.

    python benchmarks/isolation.py [--steps 5000] [--rounds 9]

ExaLatency-v0 of 0 seconds with observations of several sizes, stepped in this process and in one of its
own, in turns. The figures are the median over the steps of a round, in the quietest round, and the
difference of the means.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from exarl.envs import make_env
from exarl.envs.isolation import isolate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=5000, help="of each round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 1000, 30_000, 1_000_000])
    options = parser.parse_args()
    print("numbers seen    inline  isolated      more   (mean)     start")
    for size in options.sizes:
        kwargs = {"mean_seconds": 0.0, "observation_size": size, "episode_steps": 10**9}
        inline, _ = make_env("ExaLatency-v0", kwargs)
        started = time.perf_counter()
        isolated, _ = isolate("ExaLatency-v0", kwargs)
        start = time.perf_counter() - started
        steps = max(50, min(options.steps, 100_000_000 // size))
        here, there = [], []
        for _ in range(options.rounds):
            here.append(measure(inline, steps))
            there.append(measure(isolated, steps))
        isolated.close()
        (median, mean), (far_median, far_mean) = min(here), min(there)
        print(
            f"{size:12,d}  {median * 1e6:5.1f} us  {far_median * 1e6:5.1f} us"
            f"  {(far_median - median) * 1e6:5.1f} us  {(far_mean - mean) * 1e6:5.1f} us"
            f"  {start * 1e3:4.0f} ms",
            flush=True,
        )


def measure(env: Any, steps: int) -> tuple[float, float]:
    """Median and mean of the seconds a step takes."""
    env.reset(seed=0)
    seconds = []
    for _ in range(steps):
        started = time.perf_counter()
        env.step(1)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), statistics.fmean(seconds)


if __name__ == "__main__":
    main()
