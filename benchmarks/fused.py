"""Training entirely on the device: rates of the fused workflow, of populations, and of ExaCH.

    python benchmarks/fused.py rate [--n_envs 2048 16384] [--seconds 8]
    python benchmarks/fused.py solve [--n_envs 2048]
    python benchmarks/fused.py population [--members 1 10 100 1000]
    python benchmarks/fused.py cahn_hilliard [--n_envs 64 512 4096] [--size 64 128]

``rate``: PPO on CartPole, 32-step rollouts, 4 epochs of 4 minibatches, two networks of 64 x 64 tanh;
steps/s of the second half of an ``exarl train``. ``solve``: seconds from the start of the
process to a mean return of 475 in the last 100 episodes, compilation included, with a cold and a warm
compilation cache. ``population``: seconds for a given training of so many agents at once, seeds x
learning rates. ``cahn_hilliard``: environment steps/s on the device against NumPy on one core, and the
part of the device's memory bandwidth that the solver's array passes reach.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PPO = [
    *("--agent", "PPO-v0", "--env", "CartPole-v1", "--workflow", "fused"),
    *("--block_steps", "32", "--epochs", "4", "--minibatches", "4"),
    *("--hidden", "[64,64]", "--activation", "tanh", "--checkpoint_interval", "1000"),
]

PASSES = 24
"""Readings and writings of a field in one solver step, if nothing were kept in caches: of each of the
four transforms 2, of each of the two cubics 2, of each of the two updates 6."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("rate", "solve", "population", "cahn_hilliard"))
    parser.add_argument("--n_envs", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--size", type=int, nargs="+", default=[64, 128])
    options = parser.parse_args()
    globals()[options.what](options)


def trained(
    words: list[str], folder: Path, **environment: str
) -> tuple[list[dict[str, Any]], float]:
    """The rows of an ``exarl train``, and how long it took from start to end."""
    started = time.monotonic()
    command = [sys.executable, "-m", "exarl", "train", *words, "--run_dir", str(folder)]
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    rows = [json.loads(line) for line in (folder / "result.jsonl").read_text().splitlines()]
    return rows, time.monotonic() - started


def rate(options: argparse.Namespace) -> None:
    print("| environments | steps/s, second half | first row after (s) |\n|---|---|---|")
    for n_envs in options.n_envs or [8, 2048, 16384]:
        with tempfile.TemporaryDirectory() as folder:
            words = [*PPO, "--n_envs", str(n_envs), "--wall_time", str(options.seconds + 10)]
            rows, _ = trained(words, Path(folder) / "run")
        half = rows[0]["time_total_s"] + (rows[-1]["time_total_s"] - rows[0]["time_total_s"]) / 2
        late = [row for row in rows if row["time_total_s"] >= half]
        steps = late[-1]["timesteps_total"] - late[0]["timesteps_total"]
        seconds = late[-1]["time_total_s"] - late[0]["time_total_s"]
        print(
            f"| {n_envs:,} | {steps / seconds:,.0f} | {rows[0]['time_total_s']:.1f} |", flush=True
        )


def solve(options: argparse.Namespace) -> None:
    n_envs = (options.n_envs or [256])[0]
    step_size = "1e-3" if n_envs <= 64 else "2.5e-3"  # larger batches want larger steps
    words = [*PPO, "--n_envs", str(n_envs), "--learning_rate", step_size, "--target_reward", "475"]
    print("| compilation cache | process start to 475 (s) | steps |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        cache = str(Path(folder) / "cache")
        for name in ("cold", "warm"):
            rows, seconds = trained(words, Path(folder) / name, JAX_COMPILATION_CACHE_DIR=cache)
            print(f"| {name} | {seconds:.1f} | {rows[-1]['timesteps_total']:,} |", flush=True)


def population(options: argparse.Namespace) -> None:
    """100 iterations of 16 environments each, as a small study would have them."""
    n_envs = (options.n_envs or [16])[0]
    print("| agents | training (s) | of which compiling | time against one | best of them |")
    print("|---|---|---|---|---|")
    one = 0.0
    for members in options.members:
        rates = max(1, members // 10)
        sweep = f"learning_rate=1e-4:1e-2:{rates}:log"
        words = [*PPO, "--n_envs", str(n_envs), "--total_steps", str(100 * 32 * n_envs)]
        words += ["--sweep", sweep, "--n_seeds", str(-(-members // rates))]
        with tempfile.TemporaryDirectory() as folder:
            rows, _ = trained(words, Path(folder) / "run")
        first, last = rows[0]["time_total_s"], rows[-1]["time_total_s"]
        one = one or last - first
        best = rows[-1]["episode_reward_max"]
        ratio = (last - first) / one
        print(f"| {members:,} | {last:.1f} | {first:.1f} | {ratio:.2f} | {best:.0f} |", flush=True)


def cahn_hilliard(options: argparse.Namespace) -> None:
    from exarl.agents.compiled import jax
    from exarl.envs.device import DeviceEnvs
    from exarl.run.build import build_episode
    from exarl.run.configure import configure

    device = jax.devices()[0]
    print(f"{device.device_kind}\n")
    print("| grid | environments | steps/s | against NumPy on one core | GB/s of array passes |")
    print("|---|---|---|---|---|")
    for size in options.size:
        chosen = {"env": "ExaCH-v0", "agent": "DQN-v0", "grid": size}
        env, adapter, _ = build_episode(configure(overrides=chosen))
        alone = numpy_rate(env)
        print(f"| {size} x {size} | 1, NumPy | {alone:.1f} | 1 | |", flush=True)
        envs = DeviceEnvs.of(env, adapter)
        solver_steps = env.unwrapped.functions.model.substeps
        for n_envs in options.n_envs or [64, 512, 4096]:
            found = device_rate(envs, n_envs, adapter.spec.n_actions or 1)
            traffic = found * solver_steps * PASSES * 4 * size * size / 1e9
            line = f"| {size} x {size} | {n_envs:,} | {found:,.0f} | {found / alone:,.0f} |"
            print(f"{line} {traffic:,.0f} |", flush=True)


def numpy_rate(env: Any, steps: int = 40) -> float:
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
    started = time.perf_counter()
    for step in range(steps):
        if step % 30 == 0:
            env.reset(seed=step)
        env.step(env.action_space.sample())
    return steps / (time.perf_counter() - started)


def device_rate(envs: Any, n_envs: int, actions: int, steps: int = 8) -> float:
    """Environment steps a second with random actions, compiled as in the workflow."""
    from exarl.agents.compiled import jax

    @jax.jit
    def roll(world: Any, key: Any) -> Any:
        def step(world: Any, key: Any) -> Any:
            acting, stepping = jax.random.split(key)
            chosen = jax.random.randint(acting, (n_envs,), 0, actions)
            world, outcome = envs.step(world, chosen, stepping)
            return world, outcome.reward.sum()

        return jax.lax.scan(step, world, jax.random.split(key, steps))

    world = jax.jit(lambda key: envs.begin(key, n_envs))(jax.random.key(0))
    world, _ = jax.block_until_ready(roll(world, jax.random.key(1)))
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < 2.0:
        world, _ = jax.block_until_ready(roll(world, jax.random.key(rounds)))
        rounds += 1
    return rounds * steps * n_envs / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
