"""Predictions of 'exarl plan' beside runs of the same layouts on this machine.

    python benchmarks/plan_validation.py [--seconds 12] [--only NAME ...] [--json FILE]

Environments sleep (ExaLatency-v0, ExaFaulty-v0), so that more ranks than cores do not slow them down.
So do the updates of heavy learners (benchmarks/sleeping_agent.py), since a learner's arithmetic takes
as long as the rest of the machine lets it; light ones are DQN. Costs come from four measurements:
'exarl bench' of a light learner, of a heavy one, and of two heavy ones, and one run in which
environments fail; how much steps vary is what the environments are told. No other layout is measured
before it is predicted. A prediction that is off by more than 10% is compared with a second run; both
are in the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.plan.costs import Costs
from exarl.plan.forecast import PlannedRun
from exarl.plan.measured import costs_of
from exarl.plan.simulation import simulate
from exarl.records.metrics import read_rows
from exarl.training.measure import training_rate

STEP_S = 0.02
CRASHES = 0.01
"""The part of ExaFaulty's steps that end its process."""
LIGHT = ["--hidden", "[32]", "--updates_per_step", "0.25"]
HEAVY = [
    *("--agent", "sleeping_agent:Sleeping-v0", "--update_seconds", "0.06"),
    *("--updates_per_step", "0.25"),
]
LATENCY = ["--env", "ExaLatency-v0", "--mean_seconds", str(STEP_S)]
FAULTY = [
    *("--env", "ExaFaulty-v0", "--crash_p", str(CRASHES), "--step_seconds", str(STEP_S)),
    *("--env_isolation", "process", "--env_failure", "restart"),
]
FIXED, EXPONENTIAL = "fixed", "exponential"


@dataclass(frozen=True)
class Case:
    """A layout; ``times``: fixed, exponential, or the shape of a lognormal distribution."""

    run: PlannedRun
    times: str = FIXED
    heavy: bool = False
    faulty: bool = False
    longer: float = 1.0  # for distributions whose mean is found slowly

    @property
    def name(self) -> str:
        run, parts = self.run, []
        parts = ["alone" if run.alone else f"{run.workflow} {run.learners}+{run.actors}"]
        parts += [f"{run.envs_per_actor} envs"] if run.envs_per_actor > 1 else []
        parts += [f"block {run.block_steps}"] if run.block_steps != 16 else []
        parts += [f"lag<={run.max_policy_lag}"] if run.max_policy_lag is not None else []
        parts += [self.times if self.times in (FIXED, EXPONENTIAL) else f"lognormal {self.times}"]
        return ", ".join(parts + ["heavy"] * self.heavy + ["failures"] * self.faulty)

    @property
    def spread(self) -> float:
        if self.times in (FIXED, EXPONENTIAL):
            return float(self.times == EXPONENTIAL)
        return math.sqrt(math.expm1(float(self.times) ** 2))

    def words(self) -> list[str]:
        run = self.run
        words = [*(FAULTY if self.faulty else LATENCY), *(HEAVY if self.heavy else LIGHT)]
        if self.times == EXPONENTIAL:
            words += ["--distribution", "exponential"]
        elif self.times != FIXED:
            words += ["--distribution", "lognormal", "--sigma", self.times]
        words += ["--workflow", run.workflow, "--block_steps", str(run.block_steps)]
        words += ["--envs_per_actor", str(run.envs_per_actor)]
        words += ["--learner_procs", str(run.learners)] if run.learners > 1 else []
        if run.max_policy_lag is not None:
            words += ["--max_policy_lag", str(run.max_policy_lag)]
        return words


def planned(workflow: str, actors: int, **more: Any) -> PlannedRun:
    return PlannedRun(workflow, actors, **{"block_steps": 16, **more})


CASES = [
    Case(PlannedRun("sync", block_steps=16, alone=True)),
    Case(planned("sync", 2)),
    Case(planned("sync", 4), "1.0", longer=2),
    Case(planned("async", 1)),
    Case(planned("async", 3), "1.0", longer=2),
    Case(planned("async", 5), EXPONENTIAL),
    Case(planned("async", 4, envs_per_actor=3, block_steps=8)),
    Case(planned("async", 4, max_policy_lag=1), "1.0", longer=2),
    Case(planned("rma", 3)),
    Case(planned("rma", 5), "1.5", longer=3),
    Case(planned("rma", 4, max_policy_lag=1), "1.0", longer=2),
    Case(planned("async", 4), heavy=True),
    Case(planned("async", 2, max_policy_lag=0), heavy=True),
    Case(planned("rma", 3), heavy=True),
    Case(planned("sync", 3), heavy=True),
    Case(planned("rma", 4, learners=2)),
    Case(planned("async", 4, learners=2), heavy=True),
    Case(planned("rma", 4, learners=2), "1.0", heavy=True, longer=2),
    Case(planned("async", 3), faulty=True, longer=2),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=12.0, help="steady part of a run")
    parser.add_argument("--only", nargs="+", help="layouts whose names contain one of these")
    parser.add_argument("--json", help="write what was measured and predicted to this file")
    options = parser.parse_args()
    costs = measured_costs(options.seconds)
    for name, found in costs.items():
        print(f"{name}: {found}", flush=True)
    print(f"\n{'layout':<44}{'predicted':>10}{'measured':>10}{'error':>8}{'again':>10}{'error':>8}"
          f"{'lag':>7}{'measured':>9}{'idle':>6}{'measured':>9}{'busy':>6}{'measured':>9}")  # fmt: skip
    rows = []
    for case in CASES:
        if options.only and not any(word in case.name for word in options.only):
            continue
        rows.append(row(case, costs, options.seconds))
        if options.json:
            Path(options.json).write_text(json.dumps(rows, indent=1))
    errors = sorted(abs(row["error"]) for row in rows)
    within = sum(error <= 0.1 for error in errors)
    print(f"\nfirst runs: {within} of {len(rows)} within 10%, median {errors[len(rows) // 2]:.1%}")


def row(case: Case, costs: dict[str, Costs], seconds: float) -> dict[str, Any]:
    """One layout, predicted and then run."""
    kind = "faulty" if case.faulty else "heavy" if case.heavy else "light"
    if case.run.learners > 1 and case.heavy:
        kind = "team"
    own = dataclasses.replace(costs[kind], spread=case.spread)
    found = simulate(own, case.run)
    seen = measured(case, seconds * case.longer)
    error = found.steps_per_s / seen["rate"] - 1
    again = None
    text = f"{case.name:<44}{found.steps_per_s:>10.1f}{seen['rate']:>10.1f}{error:>+8.1%}"
    if abs(error) > 0.1:
        again = measured(case, seconds * case.longer)["rate"]
        text += f"{again:>10.1f}{found.steps_per_s / again - 1:>+8.1%}"
    else:
        text += " " * 18
    text += f"{found.lag_mean:>7.1f}{seen['lag']:>9.1f}{found.actor_idle:>6.0%}{seen['idle']:>9.0%}"
    print(text + f"{found.learner_busy:>6.0%}{seen['busy']:>9.0%}", flush=True)
    return {
        "layout": case.name,
        "predicted": found.steps_per_s,
        "again": again,
        "error": error,
        **seen,
    }


def measured_costs(seconds: float) -> dict[str, Costs]:
    """The costs of each kind of run."""
    light = bench(Case(planned("async", 2)), seconds)
    heavy = bench(Case(planned("async", 3), heavy=True), seconds)
    team = bench(Case(planned("async", 3, learners=2), heavy=True), seconds)
    team = dataclasses.replace(heavy, reduce_s=team.reduce_s, skew=team.skew)
    failing = measured(Case(planned("async", 2), faulty=True), 2 * seconds)
    rate = 3600 * CRASHES / STEP_S
    faulty = dataclasses.replace(light, failures_per_hour=rate, restart_s=failing["restart_s"])
    return {"light": light, "heavy": heavy, "team": team, "faulty": faulty}


def bench(case: Case, seconds: float) -> Costs:
    """What 'exarl bench' measures of a layout, with the steps as long as they are meant to be."""
    command = ["bench", "--json", "--seconds", str(2 * seconds), "--procs", str(case.run.ranks)]
    done = exarl(*command, *case.words())
    costs, _ = costs_of(json.loads(done.stdout))
    return costs


def measured(case: Case, seconds: float) -> dict[str, float]:
    """The speed of a run, and where its time went."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["train", "--run_dir", str(run), "--wall_time", str(seconds + 6)]
        words += ["--total_steps", "null"]
        words += ["--procs", str(case.run.ranks)] if not case.run.alone else []
        words += ["--learning_starts", "0"] if not case.heavy else []
        exarl(*words, "--checkpoint_interval", "1e9", *case.words())
        rows = read_rows(run / "result.jsonl")
        summary = json.loads((run / "summary.json").read_text())
    rate = training_rate(rows)
    assert rate is not None, case
    late = [r for r in rows if r["time_total_s"] >= rows[-1]["time_total_s"] - rate.seconds]
    learner, actors = summary["time_split"]["learner"], summary["time_split"]["actors"]
    began = learner.get("start", 0) + learner.get("compile", 0)
    failures = summary["env_restarts"]
    whole = case.run.actors * summary["wall_s"]
    return {
        "rate": rate.steps_per_s,
        "lag": sum(r["policy_lag_mean"] for r in late) / len(late),
        "idle": max(0.0, actors["wait"] + actors["send"] - began) / (1 - began),
        "busy": 1 - learner.get("wait", 0) / (1 - began),
        "restart_s": actors["restart"] * whole / max(failures, 1),
    }


def exarl(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "exarl", *words]
    here = Path(__file__).parent  # where the sleeping agent is found
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr[-3000:]}")
    return done


if __name__ == "__main__":
    main()
