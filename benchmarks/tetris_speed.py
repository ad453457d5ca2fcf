"""Steps per second of ExaTetris-v0: one game in NumPy, and many at once compiled.

python benchmarks/tetris_speed.py [GAMES]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from exarl.science.tetris.env import ExaTetris
from exarl.science.tetris.functions import OBSERVATIONS, Tetris


def in_numpy(observation: str, steps: int) -> float:
    """Random steps of one environment, observations and resets included."""
    env = ExaTetris(observation=observation)  # type: ignore[arg-type]
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 6, steps).tolist()
    start = time.process_time()
    for action in actions:
        if env.step(action)[2]:
            env.reset()
    return steps / (time.process_time() - start)


def compiled(observation: str, games: int, steps: int = 100) -> float:
    """The same for ``games`` environments in one compiled loop on the default device."""
    import jax
    import jax.numpy as jnp

    functions = Tetris(observation, xp=jnp)

    def step(state: object, key: object) -> tuple[object, object]:
        first, second, third = jax.random.split(key, 3)
        following = functions.transition(state, jax.random.randint(first, (), 0, 6), second)
        fresh = functions.initial(third)
        following = jax.tree.map(lambda a, b: jnp.where(following.over, a, b), fresh, following)
        return following, functions.observation(following, key).sum(dtype=jnp.int32)

    @jax.jit
    def run(key: object) -> object:
        states = jax.vmap(functions.initial)(jax.random.split(key, games))
        keys = jax.random.split(key, (steps, games))
        return jax.lax.scan(jax.vmap(step), states, keys)[1]

    jax.block_until_ready(run(jax.random.key(0)))
    start = time.perf_counter()
    jax.block_until_ready(run(jax.random.key(1)))
    return games * steps / (time.perf_counter() - start)


def main(games: int = 256) -> None:
    for observation in OBSERVATIONS:
        few = 2000 if observation == "image" else 20_000
        many = max(games // 16, 1) if observation == "image" else games
        print(
            f"{observation:6s} NumPy {in_numpy(observation, few):10,.0f} steps/s"
            f"   {many} games compiled {compiled(observation, many):12,.0f} steps/s",
            flush=True,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
