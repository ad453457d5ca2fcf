"""Each science environment: an agent of ours against chance and against a plain rule.

    python benchmarks/science/run.py [--only ExaCovid-v0 ...] [--seeds 5] [--jobs 2] [--out DIR]
                                     [--pictures docs/img]

The agent trains with its packaged settings; the best policy of each seed plays 100 episodes of other
seeds. The rules play 100 episodes as well. Prints a table; ``--pictures`` also writes, for each
environment, the curves of all seeds with the rules as lines, and how an episode of a trained policy
ends. Runs whose result stands in DIR are not made again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from exarl.envs.registration import register_all
from exarl.science.booster import env as booster
from exarl.science.covid import env as covid

sys.path.insert(0, str(Path(__file__).parents[1] / "learning"))
from run import interquartile_mean, judged, kept

Rule = Callable[[Any, Any, dict[str, Any]], Any]
"""(environment, observation, info) -> action"""
EPISODES = 100


def chance(env: Any, seen: Any, info: dict[str, Any]) -> Any:
    """Any action."""
    return env.action_space.sample()


def always(action: Any) -> Rule:
    """Ever the same action."""
    return lambda env, seen, info: action


def on_booster(rule: Callable[[Any], float]) -> Rule:
    """A rule that says by how much the current is to change."""
    return lambda env, seen, info: env.unwrapped.action_for(rule(info))


@dataclass(frozen=True)
class Case:
    """The agent to train, for how many steps, and the rules to beat."""

    agent: str
    steps: int
    rules: dict[str, Rule]
    words: tuple[str, ...] = ()


IDLE = {"do nothing": lambda env, seen, info: env.unwrapped.functions.idle}
BOOSTER = {"do nothing": on_booster(booster.hold), "regulator": on_booster(booster.regulate)}
CASES = {
    "ExaCH-v0": Case("DQN-v0", 12_000, {**IDLE, "cool at once": always(0)}),
    "ExaCH3D-v0": Case(
        "DQN-v0",
        9_000,
        {**IDLE, "lower kappa at once": always(0)},
        words=("--workflow", "fused", "--n_envs", "4"),
    ),
    "ExaWaterClusterDiscrete-v0": Case(
        "DQN-v0",
        12_000,
        {"do nothing": always(0)},
        words=("--workflow", "fused", "--n_envs", "4"),
    ),
    "ExaTetris-v0": Case(
        "PPO-v0", 400_000, {"do nothing": always(0)}, words=("--model_type", "CNN")
    ),
    "ExaBoosterDiscrete-v0": Case("DQN-v0", 80_000, BOOSTER),
    "ExaBooster-v0": Case("SAC-v0", 30_000, BOOSTER),
    "ExaCovid-v0": Case(
        "DQN-v0",
        40_000,
        {
            "do nothing": lambda env, seen, info: covid.hold(seen),
            "follow growth": lambda env, seen, info: covid.follow_growth(seen),
        },
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--out", type=Path, default=Path("science_results"))
    parser.add_argument("--pictures", type=Path, help="folder for the pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    register_all()
    print("| environment | agent, steps | return, IQM [range] of seeds | random | rules |")
    print("|---|---|---|---|---|")
    for id in options.only:
        case = CASES[id]
        with ThreadPoolExecutor(options.jobs) as pool:
            seeds = range(1, options.seeds + 1)
            runs = list(pool.map(lambda seed, id=id: run(id, seed, options.out), seeds))  # type: ignore[misc]
        rules = {"random": chance, **case.rules}
        scores = {name: float(np.mean(played(id, rule))) for name, rule in rules.items()}
        print(row(id, case, [r["best"] for r in runs], scores), flush=True)
        if options.pictures:
            draw(id, case, runs, scores, options.pictures / f"{id}_curve.png")
            film(options.out / f"{id}_1", options.pictures / f"{id}_trained.png")


def run(id: str, seed: int, out: Path) -> dict[str, Any]:
    """One seed of the environment's agent."""
    case, folder = CASES[id], out / f"{id}_{seed}"
    task = f"{case.agent}/{id}"
    return kept(folder, lambda: judged(task, seed, case.steps, folder, case.words))


def played(id: str, rule: Rule) -> list[float]:
    """Returns of ``EPISODES`` episodes by a rule."""
    env: Any = gymnasium.make(id)
    env.action_space.seed(0)
    returns = []
    for episode in range(EPISODES):
        seen, info = env.reset(seed=10_000 + episode)
        total, ended = 0.0, False
        while not ended:
            seen, reward, terminated, truncated, info = env.step(rule(env, seen, info))
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return returns


def row(id: str, case: Case, rewards: list[float], scores: dict[str, float]) -> str:
    """The table's row."""
    others = ", ".join(f"{name} {score:.2f}" for name, score in scores.items() if name != "random")
    return (
        f"| {id} | {case.agent}, {case.steps:,} | {interquartile_mean(rewards):.2f}"
        f" [{min(rewards):.2f}, {max(rewards):.2f}] | {scores['random']:.2f} | {others} |"
    )


def draw(
    id: str, case: Case, runs: list[dict[str, Any]], scores: dict[str, float], path: Path
) -> None:
    """All seeds' evaluations over steps, and the rules as lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
    for result in runs:
        axis.plot(*zip(*result["curve"], strict=True), color="C0", alpha=0.6, linewidth=1)
    for number, (name, score) in enumerate(scores.items()):
        axis.axhline(score, color=f"C{number + 1}", linestyle="--", label=f"{name} {score:.1f}")
    # Chance may be so far below all else that nothing else could be told apart: the legend has it.
    shown = [y for result in runs for _, y in result["curve"]]
    shown += [score for name, score in scores.items() if name != "random"]
    margin = 0.1 * (max(shown) - min(shown))
    axis.set_ylim(min(shown) - margin, max(shown) + margin)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
    axis.set(title=f"{id}, {case.agent}", xlabel="environment steps", ylabel="return, 10 episodes")
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def film(folder: Path, path: Path) -> None:
    """The last frame of an episode of the best policy."""
    from PIL import Image

    video = folder.with_name(f"{folder.name}.gif")
    command = [sys.executable, "-m", "exarl", "evaluate", str(folder), "--best"]
    subprocess.run(
        [*command, "--episodes", "1", "--video", str(video)], check=True, capture_output=True
    )
    with Image.open(video) as frames:
        frames.seek(frames.n_frames - 1)
        frames.convert("RGB").save(path)


if __name__ == "__main__":
    main()
