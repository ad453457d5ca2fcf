"""The sections of the report of runs, from an overview of groups to the facts about each run."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exarl.display.curve import AXES, Curve
from exarl.records.metrics import COLUMNS, finite
from exarl.records.state import FAILED, FINISHED, KILLED, RUNNING, STOPPED, UNKNOWN
from exarl.report import figures
from exarl.report.groups import Difference, Group, differences, origin_of
from exarl.report.page import Cell, Figure, Note, Part, Section, section, table, tabs
from exarl.report.read import NO_SUMMARY, Run
from exarl.types import FAILURES

MOST_METRICS = 16


def sections(groups: Sequence[Group], x: str = "steps") -> list[Section]:
    """All sections that have content; ``x`` is the axis that is visible first."""
    found = [
        _overview(groups),
        _learning(groups, x),
        _evaluations(groups, x),
        _metrics(groups, x),
        _throughput(groups),
        _time_split(groups),
        _lag(groups, x),
        _failures(groups),
        _populations(groups),
        _configuration(groups),
        _facts(groups),
    ]
    return [each for each in found if each is not None]


def _overview(groups: Sequence[Group]) -> Section:
    head = ("group", "environment", "runs", "state", "steps", "simulations", "core-hours",
            "wall time (s)", "best reward", "last reward", "evaluation", "steps/s",
            "updates/s")  # fmt: skip
    rows: list[list[Cell]] = []
    for group in groups:
        totals = [_totals(run) for run in group.runs]
        envs, states = ", ".join(figures.environments([group])), _states(group)
        rows.append([group.label, envs, len(group.runs), states,
                     *(_spread(each) for each in zip(*totals, strict=True))])  # fmt: skip
    notes = [Note(note) for group in groups for run in group.runs for note in run.notes]
    words = (
        "Rewards are mean returns over the last episodes of a run (reward_window). Evaluation is the"
        " best mean return of its greedy policy (eval_interval). For several runs the table shows the"
        " median, with minimum .. maximum in brackets."
    )
    return section("Overview", words, table(head, rows), *notes)


def state_name(run: Run) -> str:
    """The state of a run in one word; without lock and summary it runs until it writes no more rows."""
    if run.stands.name == UNKNOWN:
        return KILLED if run.state == NO_SUMMARY else RUNNING
    return run.stands.name


def _states(group: Group) -> str:
    """The states of a group's runs, with counts where they differ."""
    counts = Counter(state_name(run) for run in group.runs)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {state}" for state, count in counts.most_common())


def _totals(run: Run) -> tuple[float | None, ...]:
    rewards = [r for row in run.rows if (r := finite(row, "episode_reward_mean")) is not None]
    seconds = finite(run.summary, "wall_s") or finite(run.last, "time_total_s")
    best, last = (finite(run.summary, f"{which}_reward_mean") for which in ("best", "last"))
    rates = [
        finite(run.summary, f"{what}_per_s")
        or (total / seconds if seconds and (total := finite(run.last, key)) else None)
        for what, key in (("steps", "timesteps_total"), ("updates", "updates_total"))
    ]
    return (
        run.total("timesteps_total"),
        run.total("simulations_total"),
        run.total("core_hours_total"),
        seconds,
        max(rewards, default=None) if best is None else best,
        (rewards[-1] if rewards else None) if last is None else last,
        _best_evaluation(run),
        *rates,
    )


def _best_evaluation(run: Run) -> float | None:
    played = [r for row in run.evaluations if (r := finite(row, "reward_mean")) is not None]
    stored = finite(run.summary, "best_evaluation")
    return max(played, default=None) if stored is None else stored


def _learning(groups: Sequence[Group], x: str) -> Section | None:
    title = "mean return of the last episodes"
    drawn = _by_axis(groups, lambda axis: figures.of_rows("episode_reward_mean", axis), title, x)
    if drawn is None:
        return None
    words = (
        "Click a name to hide it, double-click to isolate it. Drag to zoom, double-click to reset."
    )
    if any(len(group.runs) > 1 for group in groups):
        words = (
            "Thick lines are the median of a group's runs, thin lines single runs. The band shows the"
            f" quartiles of four or more runs, and the range of fewer. {words}"
        )
    return section("Learning curves", words, drawn)


def _evaluations(groups: Sequence[Group], x: str) -> Section | None:
    drawn = _by_axis(groups, figures.of_evaluations, "mean return, greedy policy", x)
    words = "Mean return of the greedy policy, evaluated during training (eval_interval)."
    return None if drawn is None else section("Evaluations", words, drawn)


def _metrics(groups: Sequence[Group], x: str) -> Section | None:
    """Losses and the other metrics that agents report."""
    names = dict.fromkeys(
        key
        for group in groups
        for run in group.runs
        for key in run.last
        if key not in COLUMNS and not key.startswith("time/")
    )
    ordered = sorted(names, key=lambda name: "loss" not in name)[:MOST_METRICS]
    axis = AXES[x][1]
    return _tabbed(
        "Losses and other metrics",
        {
            name: figures.curves(groups, figures.of_rows(name, x), axis, name, decades=True)
            for name in ordered
        },
    )


def _throughput(groups: Sequence[Group]) -> Section | None:
    rates = {"steps/s": "timesteps_total", "updates/s": "updates_total"}
    drawn = {
        name: figures.curves(groups, figures.rate_of(key), "wall time (s)", name)
        for name, key in rates.items()
    }
    return _tabbed("Throughput", drawn)


def _time_split(groups: Sequence[Group]) -> Section | None:
    rows: list[tuple[str, dict[str, float]]] = []
    bounds = []
    for group in groups:
        learner, actors = (_mean_split(group, role) for role in ("learner", "actors"))
        if "env" in learner:  # one process that does both
            rows.append((group.label, learner))
        else:
            both = ((f"{group.label}: learner", learner), (f"{group.label}: actors", actors))
            rows += [(label, parts) for label, parts in both if sum(parts.values()) > 0]
        texts = [run.summary["bound_by"] for run in group.runs if "bound_by" in run.summary]
        bounds += [(group.label, text) for text in texts[:1]]
    if not rows:
        return None
    words = (
        "What learners and actors spent their time on, as a mean over the runs of a group. There is one"
        " bar where one process does both."
    )
    drawn = figures.bars(rows, "percentage of time")
    limits: list[Part] = [table(("group", "bound by"), bounds)] if bounds else []
    return section("Where the time went", words, drawn, *limits)


def _mean_split(group: Group, role: str) -> dict[str, float]:
    """The percentage of each phase in the time of a role, over the runs that have it."""
    parts = [found for run in group.runs if (found := _split(run)[role])]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: 100 * statistics.fmean(p.get(name, 0.0) for p in parts) for name in names}


def _split(run: Run) -> dict[str, dict[str, float]]:
    """Shares of time by role, from the summary or, without one, from the last row."""
    last = {k.removeprefix("time/"): v for k, v in run.last.items() if k.startswith("time/")}
    stored = _mapping(run.summary, "time_split") or {"learner": last}
    return {role: _numbers(_mapping(stored, role)) for role in ("learner", "actors")}


def _lag(groups: Sequence[Group], x: str) -> Section | None:
    lagged = [g for g in groups if any(finite(r.last, "policy_lag_max") for r in g.runs)]
    if not lagged:
        return None
    drawn = {
        f"{which} of a row": figures.curves(
            lagged, figures.of_rows(f"policy_lag_{which}", x), AXES[x][1], "versions"
        )
        for which in ("mean", "max")
    }
    words = "How many versions the acting weights were behind the newest."
    return _tabbed("Policy lag", drawn, words)


def _failures(groups: Sequence[Group]) -> Section:
    rows = []
    for group in groups:
        for run in group.runs:
            counts = _failure_counts(run)
            if any(counts.values()) or run.total("env_restarts"):
                rows.append((f"{group.label}: {run.name}", run.total("env_restarts"), counts))
    runs = [run for group in groups for run in group.runs]
    broken = [Note(f"{r.name}: {r.state}") for r in runs if r.stands.name in (FAILED, KILLED)]
    if not rows:
        sure = all(run.stands.name in (FINISHED, STOPPED) for run in runs)
        words = "No environment failed or was restarted."
        words = words if sure else "No failure and no restart of an environment was recorded."
        return section("Restarts and failures", words, *broken)
    drawn = figures.bars([(label, counts) for label, _, counts in rows], "failures by kind")
    cells = [(label, restarts, *counts.values()) for label, restarts, counts in rows]
    shown = table(("run", "restarts", *FAILURES), cells)
    return section("Restarts and failures", drawn, shown, *broken)


def _failure_counts(run: Run) -> dict[str, int]:
    """Failures of environments by kind, including the one that ended the run."""
    counted, last = _mapping(run.summary, "env_failures"), _mapping(run.summary, "failure")
    return {
        kind: int(
            max(finite(run.last, f"env_{kind}") or 0, finite(counted, kind) or 0)
            + (last.get("kind") == kind)
        )
        for kind in FAILURES
    }


def _populations(groups: Sequence[Group]) -> Section | None:
    drawn: dict[str, Figure | None] = {}
    for group in groups:
        rows = [row for run in group.runs for row in run.population]
        swept = [key for key in (rows[0] if rows else {}) if key != "reward_mean"]
        keys = [key for key in swept if key != "seed"] or swept
        for key in keys:
            label = key if len(groups) == 1 else f"{group.label}: {key}"
            drawn[label] = figures.scatter(rows, key, "reward_mean")
    words = "Agents trained together (workflow fused): the swept values and the resulting returns."
    return _tabbed("Population", drawn, words)


def _configuration(groups: Sequence[Group]) -> Section:
    if len(groups) == 1:
        return section("Configuration", *_chosen(groups[0]))
    found = [d for d in differences(groups) if d.everywhere or d.chosen]
    cells = [(d.key, *(_value(d, i) for i in range(len(groups)))) for d in found]
    words = (
        "The parameters that differ between groups, and where each was set. Omitted are parameters that"
        " not all groups have and that are at their default."
    )
    return section("Configuration", words, table(("key", *(g.label for g in groups)), cells))


def _chosen(group: Group) -> list[Part]:
    """The parameters of a single group that differ from EXARL's defaults."""
    rows = [(key, value, origin_of(group, key)) for key, value in group.values.items()]
    cells = [(k, str(v), o) for k, v, o in rows if o not in ("", "default", "packaged")]
    if not cells:
        return ["All parameters have their defaults; config.json of the run lists them."]
    words = (
        "The parameters that were set; the others have their defaults (config.json lists them all)."
    )
    return [words, table(("key", "value", "set in"), cells)]


def _value(difference: Difference, i: int) -> str:
    value, origin = difference.values[i], difference.origins[i]
    return f"{value} ({origin})" if origin else "-"


def _facts(groups: Sequence[Group]) -> Section:
    rows = [_fact(group.label, run) for group in groups for run in group.runs]
    return section("Runs", table(list(rows[0]), (list(row.values()) for row in rows)))


def _fact(label: str, run: Run) -> dict[str, str]:
    """A row of the table of runs, by column."""
    about = run.manifest
    packages = _mapping(about, "packages")
    return {
        "run": str(run.path),
        "environment": run.env,
        "group": label,
        "state": run.state,
        "seed": str(about.get("seed", "-")),
        "started": str(about.get("started", "-"))[:16].replace("T", " "),
        "host": f"{about.get('host', '-')} ({about.get('cores', '?')} cores)",
        "ranks": _ranks(_mapping(about, "layout")),
        "exarl": str(packages.get("exarl", "-")),
        "jax": str(packages.get("jax", "-")),
        "commit": str(about.get("commit") or "-")[:10],
    }


def _ranks(layout: Mapping[str, Any]) -> str:
    world = layout.get("world", "-")
    if world in (1, "-"):
        return str(world)
    return f"{world}: {layout.get('learners')} learning, {layout.get('actors')} acting"


def _by_axis(
    groups: Sequence[Group], take: Callable[[str], Callable[[Run], Curve]], title: str, first: str
) -> Part | None:
    """One figure per x axis, as tabs; None without data."""
    order = [first, *(axis for axis in AXES if axis != first)]
    drawn = {
        AXES[axis][1]: figures.curves(groups, take(axis), AXES[axis][1], title) for axis in order
    }
    shown = {label: each for label, each in drawn.items() if each is not None}
    return tabs(shown) if shown else None


def _tabbed(title: str, drawn: Mapping[str, Figure | None], words: str = "") -> Section | None:
    shown = {name: each for name, each in drawn.items() if each is not None}
    if not shown:
        return None
    return section(title, *([words] if words else []), tabs(shown))


def _spread(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "-"
    middle = _short(statistics.median(numbers))
    low, high = _short(min(numbers)), _short(max(numbers))
    return middle if low == high else f"{middle} ({low} .. {high})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _numbers(parts: Mapping[str, Any]) -> dict[str, float]:
    return {name: part for name in parts if (part := finite(parts, name)) is not None}


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}
