"""What limits the speed of a measured run, and what to do about it."""

from __future__ import annotations

from dataclasses import replace

from exarl.comm.layout import Layout
from exarl.config import Configuration
from exarl.records.clock import bound
from exarl.run.build import build_workflow
from exarl.run.situation import situation_of
from exarl.training.advice import Update, Work, options, work_of
from exarl.training.measure import EnvRate, LearningRate

LARGE_UPDATE_US = 3000.0
"""Updates that take longer than this are mostly arithmetic, so a GPU makes them faster."""
FIXED = {
    "host": "more work per iteration: raise --n_envs or --block_steps",
    "device": "raise --n_envs until the rate no longer rises",
    "failures": "the environment fails too often: see exarl check-env and the logs of a run",
    "start": "measure for longer: --seconds 60",
}
NOTHING = {
    "environment": "a faster environment; more actors would only wait for the learner",
    "uneven": "a faster environment, or one whose steps all take equally long",
    "learning": "a smaller network, or a learner on a GPU",
}


def advise(
    configuration: Configuration,
    layout: Layout,
    parts: tuple[float, float, float],
    environment: EnvRate,
    learning: LearningRate | None,
    split: tuple[dict[str, float], dict[str, float]],
    rate: float | None = None,
) -> tuple[str, str]:
    """Return what limits a run whose time is split like this, and one line of advice.

    ``parts`` are the seconds that environment, acting and learning take per step; ``rate`` is the
    measured speed of the run itself in steps per second, or None.
    """
    situation = situation_of(configuration, build_workflow(configuration), layout)
    kind, sentence = bound(*split, situation.actors > 1 and situation.workflow != "seed")
    what = sentence.partition(";")[0]
    if kind in FIXED:
        return what, FIXED[kind]
    env_s, acting_s, learning_s = parts
    seconds = Work(env_s + acting_s, learning_s).time(situation.actors, situation.lags)
    work = work_of(situation, *split)
    if learning is not None:
        work = replace(work, update=Update(learning.update_us / 1e6, learning.weights))
    found = options(kind, work, situation)
    ways = [f"{option}, {shown(option.gain * (rate or 1 / seconds))} steps/s" for option in found]
    if kind == "uneven" and found and "async" in found[0].words:
        times = environment.p99_us / environment.median_us
        ways[0] = (
            f"do not wait for the slowest actor (p99 is {times:.1f} times the median): {ways[0]}"
        )
    if kind == "learning" and learning is not None and learning.update_us > LARGE_UPDATE_US:
        ways.append("a learner on a GPU")
    return what, "; or ".join(ways) or NOTHING.get(kind, "no parameter changes this")


def shown(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
