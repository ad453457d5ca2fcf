"""Steps/s of CleanRL's dqn_jax.py on CartPole-v1, one update of 64 a step.

Runs your own, unedited copy of that file (it is not part of this repository):

    python benchmarks/peers/cleanrl_dqn.py --script path/to/cleanrl/dqn_jax.py --seed 1

in an environment with jax, flax, optax, tyro, tensorboard, torch, gymnasium and
stable-baselines3 (older copies take their replay buffer from it). The settings go in as its
command line. Two things that have no option are replaced while it runs: the widths of its hidden
layers, and the vectorised environment, whose step() drives the clock and, on Gymnasium 1.x, gives
the resets and the end-of-episode information of Gymnasium 0.29, which CleanRL was written for.
Prints one line, RESULT {...}. The thread limits come from the caller (see dqn_speed.py).
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import flax.linen
import gymnasium as gym
from window import Window, emit, versions

PACKAGES = ("jax", "jaxlib", "flax", "optax", "stable-baselines3", "torch", "gymnasium", "numpy")
WIDTHS = {120: 64, 84: 128}  # CleanRL's hidden layers and the ones this benchmark asks for
SETTINGS = {
    "--env-id": "CartPole-v1",
    "--total-timesteps": "30000",
    "--learning-rate": "1e-3",
    "--buffer-size": "50000",
    "--batch-size": "64",
    "--learning-starts": "1000",
    "--train-frequency": "1",
    "--target-network-frequency": "500",
    "--exploration-fraction": "0.5",
    "--end-e": "0.05",
}


class WindowOver(Exception):
    """Raised inside the script's training loop to end it when the window is over."""


def old_style(infos: dict[str, Any]) -> dict[str, Any]:
    """End-of-episode information of Gymnasium 1.x under the names and shapes of 0.29."""
    final = infos.get("final_info")
    if isinstance(final, dict):
        infos["final_observation"] = infos["final_obs"]
        episode = {key: value for key, value in final["episode"].items() if key[0] != "_"}
        infos["final_info"] = [{"episode": episode}]
    return infos


def hook_environment(window: Window) -> None:
    """Make the vectorised environment of the script tell the window of every step."""
    mode = getattr(gym.vector, "AutoresetMode", None)
    options = {} if mode is None else {"autoreset_mode": mode.SAME_STEP}

    class Timed(gym.vector.SyncVectorEnv):
        def __init__(self, env_fns: Any) -> None:
            super().__init__(env_fns, **options)
            self.steps_done = 0

        def step(self, actions: Any) -> tuple[Any, ...]:
            if window.at(self.steps_done):  # all of the steps before this one, updates included
                raise WindowOver
            self.steps_done += 1
            *rest, infos = super().step(actions)
            return (*rest, old_style(infos))

    gym.vector.SyncVectorEnv = Timed


def hook_network() -> set[int]:
    """Swap the widths of the hidden layers; returns the set in which it notes those it saw."""
    dense = flax.linen.Dense
    seen: set[int] = set()

    def resized(features: int, *args: Any, **kwargs: Any) -> Any:
        seen.add(int(features))
        return dense(WIDTHS.get(features, features), *args, **kwargs)

    flax.linen.Dense = resized
    return seen


def main() -> None:
    """Run the script until the window is over and print the speed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    script = args.script.resolve()
    window = Window()
    hook_environment(window)
    seen = hook_network()
    sys.argv = [str(script), "--seed", str(args.seed)]
    sys.argv += [word for pair in SETTINGS.items() for word in pair]
    sys.path.insert(0, str(script.parent.parent))  # for cleanrl_utils, where the copy needs it
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the script writes its logs to ./runs
        try:
            runpy.run_path(str(script), run_name="__main__")
        except WindowOver:
            pass
        finally:
            os.chdir("/")
    if not seen.issuperset(WIDTHS):
        raise RuntimeError(f"expected hidden layers of {sorted(WIDTHS)}, found {sorted(seen)}")
    emit(window, peer="cleanrl_jax", seed=args.seed, versions=versions(*PACKAGES))


if __name__ == "__main__":
    main()
