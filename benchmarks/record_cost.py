"""What keeping episodes costs the learner, in microseconds of processor time per step.

    python -m benchmarks.record_cost [--steps 200000]

Blocks of 32 steps of 8 environments with 4 numbers each go to a recorder, once with short episodes and
once with long ones; files included.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from exarl.data.recorder import Form, Recorder
from exarl.types import PLACE, Block

STEPS, WIDTH, SIZE = 32, 8, 4
BOX = {"type": "Box", "dtype": "float32", "low": "-inf", "high": "inf"}
FORM = Form("Some-v0", {**BOX, "shape": [SIZE]}, {**BOX, "shape": []}, lambda actions: actions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200_000)
    options = parser.parse_args()
    for length in (20, 200, 1000):
        blocks = make_blocks(length, options.steps)
        with tempfile.TemporaryDirectory() as folder:
            recorder = Recorder(Path(folder) / "data", FORM)
            started = time.process_time()
            for block in blocks:
                recorder.add(block)
            added = time.process_time()
            recorder.flush()
            ended = time.process_time()
        steps = len(blocks) * STEPS * WIDTH
        print(
            f"episodes of {length} steps: {1e6 * (ended - started) / steps:.2f} us per step, of which"
            f" {1e6 * (ended - added) / steps:.2f} at the end; {recorder.episodes} episodes"
        )


def make_blocks(length: int, steps: int) -> list[Block]:
    """Blocks of episodes of this length."""
    rng = np.random.default_rng(0)
    made = []
    for number in range(steps // (STEPS * WIDTH)):
        ages = (number * STEPS + np.arange(STEPS)[:, None]) % length + np.zeros((1, WIDTH), int)
        ended = ages == length - 1
        count = int(ended.sum())
        place = np.stack([np.broadcast_to(np.arange(WIDTH), ages.shape), ages], -1)
        made.append(
            Block(
                rng.normal(size=(STEPS + 1, WIDTH, SIZE)).astype(np.float32),
                rng.normal(size=(STEPS, WIDTH)).astype(np.float32),
                np.ones((STEPS, WIDTH), np.float32),
                ended,
                np.zeros((STEPS, WIDTH), bool),
                np.zeros((count, SIZE), np.float32),
                np.zeros(count),
                np.zeros(count, np.int64),
                {PLACE: place},
            )
        )
    return made


if __name__ == "__main__":
    main()
