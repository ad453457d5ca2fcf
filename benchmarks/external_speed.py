"""What a step costs when the environment is another program.

    python benchmarks/external_speed.py [--batches 40]

The cart and pole: in this process, as a program in C and in Python (ExaExternal-v0), and behind a
server (ExaRemote-v0). Printed are the median and the best of batches of 500 steps; other work on the
machine shows in the median.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium

from exarl.envs.external.env import HEADER, ExternalEnv
from exarl.envs.external.remote import RemoteEnv

STEPS = 500
CART = Path(__file__).parents[1] / "examples" / "external" / "cartpole.c"
HOST = f"{sys.executable} -m exarl.envs.external.host CartPole-v1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, default=40)
    batches = parser.parse_args().batches
    print("                          median    best   (us a step, resets included)")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "cartpole"
        words = ["cc", "-O2", "-I", str(HEADER.parent), str(CART), "-o", str(program), "-lm"]
        subprocess.run(words, check=True)
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "exarl",
                "serve-env",
                "CartPole-v1",
                "--bind",
                "tcp://127.0.0.1:*",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        for name, env in (
            ("in this process", gymnasium.make("CartPole-v1")),
            ("program in C, socket", ExternalEnv(str(program))),
            ("program in C, stdio", ExternalEnv(str(program), transport="stdio")),
            ("program in Python, socket", ExternalEnv(HOST)),
            ("server", RemoteEnv(address)),
        ):
            times = [batch(env) for _ in range(batches)]
            print(f"{name:26s}{median(times):6.0f}  {min(times):6.0f}")
            env.close()
        server.terminate()
        server.wait()


def batch(env: gymnasium.Env[Any, Any]) -> float:
    """Microseconds a step."""
    env.reset(seed=1)
    started = time.perf_counter()
    for i in range(STEPS):
        _, _, terminated, truncated, _ = env.step(i % 2)
        if terminated or truncated:
            env.reset()
    return (time.perf_counter() - started) / STEPS * 1e6


if __name__ == "__main__":
    main()
