"""What to do about what bounds a run."""

from __future__ import annotations

import math
import os

from exarl.comm.layout import Layout
from exarl.config import Configuration
from exarl.runs.clock import bound
from exarl.workflows.measure import EnvRate, LearningRate

LARGE_UPDATE_US = 3000.0
"""From about here on an update is more arithmetic than overhead, and a GPU pays."""


def advise(
    configuration: Configuration,
    layout: Layout,
    parts: tuple[float, float, float],
    environment: EnvRate,
    learning: LearningRate | None,
    split: tuple[dict[str, float], dict[str, float]],
) -> tuple[str, str]:
    """What bounds a run with this split of its time, and one line of advice.

    ``parts`` are the seconds that environment, acting and learning take for one step.
    """
    kind, sentence = bound(*split)
    what = sentence.partition(";")[0]
    env_s, acting_s, learning_s = parts
    if kind == "uneven" and configuration.learner.workflow == "sync":
        times = environment.p99_us / environment.median_us
        return what, f"do not wait for all (p99 is {times:.1f} times the median): --workflow async"
    if kind in ("environment", "uneven"):
        return what, more_actors(env_s + acting_s, learning_s, layout)
    if kind in ("inference", "messages"):
        width = configuration.learner.envs_per_actor
        return what, f"let more environments share a call: --envs_per_actor {4 * width}"
    if kind == "learning":
        return what, faster_learning(configuration, layout, parts, learning)
    if kind == "host":
        return what, "more work an iteration: raise --n_envs or --block_steps"
    if kind == "device":
        return what, "more environments until the rate stops to rise: --n_envs"
    if kind == "failures":
        return what, "the environment fails too often: exarl check-env, and the log of a run"
    return what, "measure for longer: --seconds 60"


def more_actors(step_s: float, learning_s: float, layout: Layout) -> str:
    """How many actors it takes until the learner is the limit."""
    if not learning_s:
        return f"each actor adds {shown(1 / step_s)} steps/s: --procs N"
    cores, enough = os.cpu_count() or 1, math.ceil(step_s / learning_s)
    if enough <= layout.actors:
        return "a faster environment; more actors than the learner can follow are there already"
    wanted = layout.learners + enough * layout.process_per_env
    here = f"{wanted}" if wanted <= cores else f"N (this machine has {cores} cores)"
    adds = f"each actor adds {shown(1 / step_s)} steps/s, until {enough:,} keep the learner busy"
    return f"{adds}: --procs {here}"


def faster_learning(
    configuration: Configuration,
    layout: Layout,
    parts: tuple[float, float, float],
    learning: LearningRate | None,
) -> str:
    """Less to learn a step, or something faster to learn with."""
    env_s, acting_s, learning_s = parts
    agent = configuration.values["agent"]
    ways = []
    acting = (env_s + acting_s) / layout.actors
    if acting > 0.2 * learning_s and (layout.alone or configuration.learner.workflow == "sync"):
        procs = " --procs 2" if layout.alone else ""
        most = 1 / max(acting, learning_s)
        ways.append(f"act meanwhile, for at most {most:,.0f} steps/s: --workflow async{procs}")
    if "updates_per_step" in agent:
        ways.append(f"fewer updates: --updates_per_step {agent['updates_per_step'] / 2:g}")
    elif agent.get("epochs", 1) > 1:
        ways.append(f"fewer passes over a block: --epochs {max(1, agent['epochs'] // 2)}")
    if learning is not None and learning.update_us > LARGE_UPDATE_US:
        ways.append("a learner on a GPU")
    return "; or ".join(ways) or "a smaller network, or a learner on a GPU"


def shown(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
