"""Advice on a run's speed: nothing that is refused, and no more than Amdahl's law allows."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from exarl.comm.layout import Layout
from exarl.config import Configuration
from exarl.errors import ConfigError
from exarl.run.build import build_workflow
from exarl.run.checks import check_configuration, plan
from exarl.run.configure import configure
from exarl.run.situation import situation_of
from exarl.training.advice import Situation, Update, Work, bound_by, options, work_of

LEARNING = {"learn": 0.6, "env": 0.25, "inference": 0.15}
ACTING = {"learn": 0.2, "env": 0.7, "inference": 0.1}
INFERRING = {"learn": 0.2, "env": 0.2, "inference": 0.6}
WAITED_FOR = {"learn": 0.9, "wait": 0.1}, {"env": 0.3, "wait": 0.7}
WAITING = {"learn": 0.2, "wait": 0.8}, {"env": 0.9, "inference": 0.1}
UNEVEN = {"learn": 0.1, "wait": 0.9}, {"env": 0.5, "wait": 0.5}
SPLITS: list[Any] = [(LEARNING, {}), (ACTING, {}), (INFERRING, {}), WAITED_FOR, WAITING, UNEVEN]
ALONE = Situation(cores=8, updates_per_step=1.0)
RANKS = dataclasses.replace(ALONE, alone=False, actors=4)
ASYNC = dataclasses.replace(RANKS, workflow="async", lags=True, many_learners=True)


@pytest.mark.parametrize(
    ("situation", "split", "expected"),
    [
        (ALONE, (LEARNING, {}), ["--workflow async --procs 2: at most 1.7", "_step 0.5: at most 1.4"]),
        (ALONE, (ACTING, {}), ["--procs 8: at most 3.2 times", "async --procs 2: at most 1.2"]),
        (ALONE, (INFERRING, {}), ["--procs 8: at most 3.2 times", "--envs_per_actor 4: at most 1.8"]),
        (RANKS, UNEVEN, ["--workflow async: at most 2.0", "--procs 8: at most 1.6"]),
        (ASYNC, WAITED_FOR, ["_step 0.5: at most 2.0"]),
        (ASYNC, WAITING, ["--procs 8: at most 1.8"]),
    ],
)  # fmt: skip
def test_the_gain_is_told(situation: Situation, split: Any, expected: list[str]) -> None:
    told = bound_by(situation, *split)
    assert told.count("times as fast") == len(expected), told
    for words in expected:
        assert words in told, told


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("situation", [ALONE, RANKS, ASYNC])
def test_no_more_is_promised_than_what_stays_as_it_is_allows(
    situation: Situation, split: Any
) -> None:
    work = work_of(situation, *split)
    now = work.time(situation.actors, situation.lags)
    for kind in ("environment", "uneven", "inference", "messages", "learning"):
        for option in options(kind, work, situation):
            left = work.acting / situation.actors - work.uneven / situation.actors
            if "procs" in option.words and "learner_procs" not in option.words:
                left = 0.0
            kept = 0.0 if re.search("updates|learner_procs", option.words) else work.learning
            assert option.gain <= now / max(kept, 0.2 * left, 1e-9) + 1e-9, option


@pytest.mark.parametrize(
    ("seconds", "weights", "more", "gain"),
    [
        (0.13, 300_000, {"several_machines": True}, "at most 1.8"),  # half the batch on each
        (0.13, 300_000, {"cores": 64}, "at most 1.5"),  # which share the cores
        (0.13, 300_000, {"cores": 8}, None),  # two cores each are no faster than four
        (0.13, 300_000, {"cores": 5}, None),  # there is no core for it
        (0.0002, 10_000, {"several_machines": True}, None),  # averaging takes longer
        (0.004, 30_000_000, {"several_machines": True}, None),  # so many weights do as well
    ],
)
def test_more_learners_are_recommended_where_they_pay(
    seconds: float, weights: int, more: dict[str, Any], gain: str | None
) -> None:
    situation = dataclasses.replace(ASYNC, updates_per_step=None, **more)
    told = bound_by(situation, *WAITED_FOR, Update(seconds, weights))
    assert ("--learner_procs 2 --procs 6" in told) == (gain is not None), told
    assert gain is None or gain in told, told


def test_a_faster_learner_is_not_recommended_where_actors_are_the_limit() -> None:
    assert options("learning", Work(acting=4.0, learning=0.9, updates=0.9), ASYNC) == []


def situation(configuration: Configuration, ranks: int) -> Situation:
    layout = plan(configuration, ranks)
    found = situation_of(configuration, build_workflow(configuration), layout)
    return dataclasses.replace(found, cores=16)


AGENTS = ("DQN-v0", "PPO-v0", "A2C-v0", "Random-v0")
WORKFLOWS: dict[str, list[int]] = {
    "sync": [1, 4], "async": [1, 4], "rma": [1, 4], "seed": [4], "fused": [1],
}  # fmt: skip


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_nothing_is_recommended_that_would_be_refused(agent: str, workflow: str) -> None:
    words = ["--agent", agent, "--workflow", workflow]
    more = [["--vtrace", "false", "--max_policy_lag", "0"]] if agent == "PPO-v0" else []
    for extra in ([], *more):
        for ranks in WORKFLOWS[workflow]:
            try:
                configuration = configure(None, [*words, *extra])
                check_configuration(configuration, ranks)
            except ConfigError:
                continue  # no such run
            for split in SPLITS:
                told = bound_by(situation(configuration, ranks), *split, Update(1.0, 1000))
                for option in re.findall(r"(--[a-z_]+ [^:;]*):", told):
                    if option.startswith(("--procs N", "--n_actors N")):
                        continue  # how many depends on machines that are not here
                    tried = option.split()
                    procs = ranks
                    if "--procs" in tried:
                        at = tried.index("--procs")
                        procs = int(tried[at + 1])
                        del tried[at : at + 2]
                    changed = configure(None, [*words, *extra, *tried])
                    plan(changed, procs)
                    check_configuration(changed, procs)


def test_a_program_on_the_device_is_told_of_the_host() -> None:
    fused = Situation(workflow="fused", one_rank=True)
    told = bound_by(fused, {"device": 0.4, "other": 0.6}, {})
    assert told.endswith("raise n_envs or block_steps: at most 2.5 times as fast")
    assert bound_by(fused, {"device": 0.9, "other": 0.1}, {}) == "the device (90% of the time)"


def test_ranks_that_step_together_are_counted() -> None:
    layout = Layout(1, 1, 1)
    configuration = configure(None, ["--process_per_env", "1"])
    alone = situation_of(configuration, build_workflow(configuration), layout)
    groups = dataclasses.replace(alone, cores=16, ranks_per_actor=4)
    assert "--workflow async --procs 5" in bound_by(groups, LEARNING, {})
