"""The sections that a page of one run, or of several, has beside those of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from exarl.dashboard.ranks import MOST_SPANS, Ranks, tracks
from exarl.records.clock import bound
from exarl.records.metrics import finite
from exarl.report import figures
from exarl.report.groups import differences, make_groups
from exarl.report.page import Cell, Note, Part, Section, section, table, tabs
from exarl.report.read import Run
from exarl.report.runs import sections, state_name
from exarl.training.advice import Situation, bound_by
from exarl.types import FAILURES

_MOST_BARS = 40
_MOST_KEYS = 8
_LAGGING = ("async", "rma")
_ADVISED = ("sync", *_LAGGING)
"""Workflows whose options follow from the files of a run; of the others only the bound is named."""


def one_run(run: Run, ranks: Ranks, x: str) -> list[Section]:
    """The page of one run: its state now, the report's sections, and its ranks."""
    overview, *rest = sections(make_groups([run]), x)
    learning = [each for each in rest if each.title == "Learning curves"]
    others = [each for each in rest if each not in learning]
    own = (_lanes(ranks), _memory(ranks), _failures(run, ranks), _blocks(run))
    return [_now(run, ranks, overview), *learning, *(each for each in own if each), *others]


def several_runs(runs: Sequence[Run], x: str, key: str | None = None) -> list[Section]:
    """The comparison of runs: the report's sections, and results over the parameters that differ."""
    overview, *rest = sections(make_groups(runs, key), x)
    compared = _parameters(runs)
    return [overview, *([compared] if compared else []), *rest]


def limit(run: Run, actors: Mapping[str, float]) -> str:
    """What bounds a run and what to change, as far as its files tell; empty before it is known."""
    if "bound_by" in run.summary:
        return str(run.summary["bound_by"])
    learner = {n.removeprefix("time/"): v for n in run.last if n.startswith("time/")
               if (v := finite(run.last, n)) is not None}  # fmt: skip
    if not learner:
        return ""
    layout = run.manifest.get("layout")
    layout = layout if isinstance(layout, Mapping) else {}
    world, n_actors = (finite(layout, key) or 1 for key in ("world", "actors"))
    if world > 1 and not actors and learner.get("wait", 0.0) <= 0.3:
        busy = 1 - learner.get("wait", 0.0)
        return (
            f"the learner works {busy:.0%} of its time; --profile lanes would show what actors do"
        )
    workflow = str(run.values.get("learner.workflow"))
    lags = workflow in _LAGGING and world > 1
    situation = Situation(
        workflow=workflow,
        learners=int(finite(layout, "learners") or 1),
        actors=int(n_actors),
        ranks_per_actor=int(finite(layout, "process_per_env") or 1),
        alone=world == 1,
        envs_per_actor=int(finite(run.values, "learner.envs_per_actor") or 1),
        cores=int(finite(run.manifest, "cores") or 1),
        lags=lags,
        may_lag=False,  # what the agent accepts is not in the files
        updates_per_step=finite(run.values, "agent.updates_per_step"),
        epochs=int(finite(run.values, "agent.epochs") or 1),
    )
    if workflow not in _ADVISED:
        return bound(learner, actors, n_actors > 1 and workflow != "seed")[1]
    return bound_by(situation, learner, actors)


def _now(run: Run, ranks: Ranks, overview: Section) -> Section:
    last = run.last
    memory = [lane.memory_mb for lane in ranks.lanes.values() if lane.memory_mb is not None]
    cells: dict[str, Cell] = {
        "state": state_name(run),
        "steps": run.total("timesteps_total"),
        "episodes": run.total("episodes_total"),
        "updates": run.total("updates_total"),
        "reward": finite(last, "episode_reward_mean"),
        "evaluation": finite(run.evaluations[-1], "reward_mean") if run.evaluations else None,
        "steps/s": finite(run.summary, "steps_per_s") or finite(last, "steps_per_s"),
        "updates/s": finite(run.summary, "updates_per_s") or finite(last, "updates_per_s"),
        "policy lag": finite(last, "policy_lag_mean"),
        "restarts": run.total("env_restarts"),
        "memory (MB)": sum(memory) if memory else None,
    }
    shown = table(list(cells), [[_whole(cell) for cell in cells.values()]])
    parts: list[Part] = [shown]
    if words := limit(run, ranks.split("actor")):
        parts.append(f"Bound by {words}.")
    notes = [part for part in overview.parts if isinstance(part, Note)]
    going = "is still running: the page"
    return section("Now", *parts, *(note for note in notes if going not in note.text))


def _whole(cell: Cell) -> Cell:
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _lanes(ranks: Ranks) -> Section | None:
    lanes = {rank: lane for rank, lane in ranks.lanes.items() if lane.spans}
    if not lanes:
        return None
    words = (
        "What each rank spends its time on: colours are stacked by their shares in each interval"
        f" (at most {MOST_SPANS} per rank)."
    )
    roles = dict.fromkeys(lane.role for lane in lanes.values())
    rows = [
        (role, {name: 100 * part for name, part in ranks.split(role).items()}) for role in roles
    ]
    over_time = figures.lanes(tracks(lanes))
    shares = figures.bars(rows, "percentage of time")
    return section("Ranks", words, tabs({"over time": over_time, "in all": shares}))


def _memory(ranks: Ranks) -> Section | None:
    known = {
        f"{rank} {lane.role}": lane.memory_mb
        for rank, lane in sorted(ranks.lanes.items())
        if lane.memory_mb is not None
    }
    if not known:
        return None
    most = max(known, key=lambda name: known[name])
    whole = f"{sum(known.values()):,.0f} MB on {len(known)} ranks"
    words = f"{whole}; most on {most}: {known[most]:,.0f} MB."
    if len(known) > _MOST_BARS:
        return section("Memory", words)
    return section(
        "Memory", words, figures.bars([(n, {"MB": mb}) for n, mb in known.items()], "MB")
    )


def _failures(run: Run, ranks: Ranks) -> Section | None:
    """Failures by environment: from the summary or, while the run goes on, from the logs."""
    stored = _mapping(run.summary.get("env_failures")).get("environments")
    counts: dict[str, Mapping[str, Any]] = {n: _mapping(c) for n, c in _mapping(stored).items()}
    counts = counts or {str(env): Counter(found) for env, found in ranks.failures.items()}
    if not counts:
        return None
    numbers = {
        name: {kind: finite(found, kind) or 0.0 for kind in FAILURES}
        for name, found in counts.items()
    }
    worst = sorted(numbers, key=lambda name: -sum(numbers[name].values()))[:_MOST_BARS]
    words = f"{len(numbers)} environments failed at least once."
    if len(worst) < len(numbers):
        words += f" Shown are the {len(worst)} that failed most often."
    drawn = figures.bars([(f"environment {name}", numbers[name]) for name in worst], "failures")
    return section("Failures by environment", words, drawn)


def _blocks(run: Run) -> Section | None:
    blocks = _mapping(run.summary.get("blocks"))
    numbers = {name: n for name in blocks if (n := finite(blocks, name)) is not None}
    if not numbers:
        return None
    words = "Blocks of steps: produced by actors, trained, left in queues at the end, dropped."
    return section("Blocks", words, table(list(numbers), [[int(n) for n in numbers.values()]]))


def _parameters(runs: Sequence[Run]) -> Section | None:
    """The last reward over each numeric parameter that was chosen differently in these runs."""
    chosen = [d.key for d in differences(make_groups(runs)) if d.chosen]
    drawn: dict[str, Part] = {}
    for key in chosen[:_MOST_KEYS]:
        rows = [
            {key: value, "mean return": reward}
            for run in runs
            if (value := finite(run.values, key)) is not None
            if not isinstance(run.values[key], bool | str)
            if (reward := finite(run.last, "episode_reward_mean")) is not None
        ]
        if len({row[key] for row in rows}) > 1:
            drawn[key.partition(".")[2]] = figures.scatter(rows, key, "mean return", "runs")
    if not drawn:
        return None
    return section(
        "Result over parameters", "One point per run: its last mean return.", tabs(drawn)
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
