"""The results of a study: the best setting as a configuration file, a table, and a report page.

The figures are not those of ``optuna.visualization``: these know neither the seeds of a setting nor
pruned settings, do not fit a page in dark colours or of any width, and lines of their parallel
coordinates cannot be selected by dragging along an axis.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exarl.records.directory import write_json, writing
from exarl.records.replacing import replacing
from exarl.report.page import COLORS, Part, Section, figure, section, table, write_page
from exarl.sweep.space import Choices, Dimension, Value, word
from exarl.sweep.spec import StudyConfig
from exarl.sweep.study import SettingRow, Study
from exarl.sweep.table import best_of, counts_text, setting_text, short

FEWEST = 8
"""Fewest complete settings for which importances mean anything."""


def write_results(study: Study) -> SettingRow | None:
    """Write best.json, trials.csv and report.html; return the best setting, None without one."""
    rows = study.rows()
    folder = study.folder
    best = best_of(rows)
    with writing(folder.path):
        if best is not None:
            write_json(folder.best, best_config(study.config, best))
        _write(folder.table, csv_text(rows, study.config))
    write_page(
        folder.report,
        _title(study.config),
        sections(study, rows),
        lead=f"{counts_text(rows, study.config.trials)}, {study.config.options.seeds} seeds each",
        foot=f"exarl sweep --study {folder.path} --report",
    )
    return best


def best_config(config: StudyConfig, best: SettingRow) -> dict[str, dict[str, Any]]:
    """The parameters of the best setting by family, without the components' defaults."""
    found = config.configuration(best.point)
    chosen: dict[str, dict[str, Any]] = {}
    for key, origin in found.origins.items():
        family, _, name = key.partition(".")
        if not origin.startswith("default"):
            chosen.setdefault(family, {})[name] = found.values[family][name]
    return chosen


def csv_text(rows: Sequence[SettingRow], config: StudyConfig) -> str:
    """One line per setting: its state, value, values of its seeds, parameters, duration and error."""
    seeds = [str(seed) for seed in config.seeds()]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    head = ["setting", "state", "value", *(f"seed_{seed}" for seed in seeds)]
    writer.writerow([*head, *config.space, "seconds", "error"])
    for row in rows:
        values = [row.value, *(row.seeds.get(seed) for seed in seeds)]
        parameters = [word(row.point[key]) if key in row.point else None for key in config.space]
        cells = [row.setting, row.state, *values, *parameters, row.seconds, row.error]
        writer.writerow(["" if cell is None else cell for cell in cells])
    return file.getvalue()


def importances(study: Study) -> dict[str, float]:
    """The share of each parameter in whether a setting is among the good ones; they sum to 1.

    Empty when there are too few complete settings.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    done = [row for row in study.rows() if row.state == "complete"]
    varied = [k for k in study.config.space if len({row.point[k] for row in done}) > 1]
    if len(done) < FEWEST or not varied or len({row.value for row in done}) < 2:
        return {}
    found = get_param_importances(
        study.optuna_study, evaluator=PedAnovaImportanceEvaluator(), params=varied
    )
    return {key: float(share) for key, share in found.items() if math.isfinite(share)}


def sections(study: Study, rows: Sequence[SettingRow]) -> list[Section]:
    """The page's sections."""
    config = study.config
    done = [row for row in rows if row.state == "complete"]
    best = best_of(rows)
    lead: list[Part] = ["No setting has a value yet."]
    if best is not None:
        lead = [
            f"{_value_name(config)} {short(best.value or 0.0)} with setting {best.setting}.",
            table(["parameter", "value"], [[k, word(v)] for k, v in best.point.items()]),
            f"To train with it: exarl train --config {study.folder.best}",
        ]
    page = [section("Best setting", *lead)]
    if done:
        page.append(section("History", figure(history(rows, config))))
        shares = importances(study)
        what: list[Part] = [f"Importances need at least {FEWEST} settings that differ in value."]
        if shares:
            what = [
                "How much each parameter decides whether a setting is good (PED-ANOVA); a rough"
                " estimate for few settings.",
                figure(importance_bars(shares), height=120 + 40 * len(shares)),
            ]
        page.append(section("Importance", *what))
        page.append(section("Parallel coordinates", figure(parallel(done, config), height=420)))
        slices = [figure(drawn, height=320) for drawn in slice_plots(rows, config)]
        page.append(section("One parameter at a time", *slices))
    page.append(section("Settings", settings_table(rows, config)))
    failed = [row for row in rows if row.state == "failed"]
    if failed:
        errors = [(row.setting, setting_text(row.point), row.error) for row in failed]
        page.append(section("Failures", table(["setting", "parameters", "error"], errors)))
    words = " ".join(config.words({}))
    page.append(section("Training", f"exarl train {words}", options_table(config)))
    return page


def history(rows: Sequence[SettingRow], config: StudyConfig) -> dict[str, object]:
    """The value of every setting and of its seeds, and the best value so far."""
    done = [row for row in rows if row.state == "complete" and row.value is not None]
    pruned = [row for row in rows if row.state == "pruned" and row.value is not None]
    best = [max(r.value or -math.inf for r in done[: i + 1]) for i in range(len(done))]
    seeds = [(row.setting, value) for row in done for value in row.seeds.values()]
    data: list[dict[str, object]] = [
        _points("seeds", [s for s, _ in seeds], [v for _, v in seeds], COLORS[7], size=4),
        _points("pruned", [r.setting for r in pruned], [r.value for r in pruned], COLORS[4]),
        _points(
            config.options.objective,
            [r.setting for r in done],
            [r.value for r in done],
            COLORS[0],
            text=[setting_text(r.point) for r in done],
        ),
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "x": [r.setting for r in done],
            "y": best,
            "line": {"color": COLORS[1], "shape": "hv"},
        },
    ]
    return {
        "data": [trace for trace in data if trace["x"]],
        "layout": {"xaxis": {"title": {"text": "setting"}}, "yaxis": _values_axis(config)},
    }


def importance_bars(shares: Mapping[str, float]) -> dict[str, object]:
    ordered = sorted(shares.items(), key=lambda item: item[1])
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [share for _, share in ordered],
        "y": [key for key, _ in ordered],
        "text": [f"{share:.2f}" for _, share in ordered],
    }
    axis = {"title": {"text": "importance"}, "range": [0, 1]}
    return {"data": [bars], "layout": {"xaxis": axis, "yaxis": {"automargin": True}}}


def parallel(done: Sequence[SettingRow], config: StudyConfig) -> dict[str, object]:
    """One line per setting through its parameters to its value."""
    dimensions = [_axis(key, dimension, done) for key, dimension in config.space.items()]
    values = [row.value or 0.0 for row in done]
    dimensions.append({"label": _value_name(config), "values": values})
    line = {"color": values, "colorscale": "Viridis", "showscale": True}
    return {
        "data": [{"type": "parcoords", "dimensions": dimensions, "line": line}],
        "layout": {"margin": {"t": 70, "l": 90, "r": 40}},
    }


def slice_plots(rows: Sequence[SettingRow], config: StudyConfig) -> list[dict[str, object]]:
    """For each parameter, the values of all settings against it."""
    drawn: list[dict[str, object]] = []
    for key, dimension in config.space.items():
        traces = []
        for state, color in (("complete", COLORS[0]), ("pruned", COLORS[4])):
            found = [r for r in rows if r.state == state and r.value is not None]
            x = [_shown(row.point[key], dimension) for row in found]
            if found:
                text = [f"setting {row.setting}" for row in found]
                traces.append(_points(state, x, [row.value for row in found], color, text=text))
        axis: dict[str, object] = {"title": {"text": key}, "exponentformat": "e"}
        if isinstance(dimension, Choices):
            names = [word(choice) for choice in dimension.values]
            axis |= {"type": "category", "categoryorder": "array", "categoryarray": names}
        elif dimension.log:
            axis |= {"type": "log"}
        drawn.append({"data": traces, "layout": {"xaxis": axis, "yaxis": _values_axis(config)}})
    return drawn


def settings_table(rows: Sequence[SettingRow], config: StudyConfig) -> Part:
    """All settings, the best first, those without a value last."""
    known = sorted(rows, key=lambda r: (r.state != "complete", r.value is None, -(r.value or 0.0)))
    head = ["setting", "state", _value_name(config), "seeds", *config.space, "seconds"]
    body = [
        [
            row.setting,
            row.state,
            row.value,
            " ".join(short(value) for value in row.seeds.values()) or "-",
            *(row.point.get(key) for key in config.space),
            row.seconds,
        ]
        for row in known
    ]
    return table(head, body)


def options_table(config: StudyConfig) -> Part:
    options = config.to_json()["sweep"]
    return table(["option", "value"], [[k, str(v)] for k, v in options.items() if v is not None])


def _axis(key: str, dimension: Dimension, done: Sequence[SettingRow]) -> dict[str, object]:
    values = [row.point[key] for row in done]
    if isinstance(dimension, Choices):
        names = [word(choice) for choice in dimension.values]
        places = [dimension.values.index(value) for value in values]
        ticks = {"tickvals": list(range(len(names))), "ticktext": names}
        return {"label": key, "values": places, "range": [0, max(len(names) - 1, 1)], **ticks}
    if not dimension.log:
        return {"label": key, "values": values, "range": [dimension.low, dimension.high]}
    low, high = math.log10(dimension.low), math.log10(dimension.high)
    marks = [low + (high - low) * i / 4 for i in range(5)]
    ticks = {"tickvals": marks, "ticktext": [f"{10**mark:.2g}" for mark in marks]}
    logs = [math.log10(float(value)) for value in values]
    return {"label": key, "values": logs, "range": [low, high], **ticks}


def _points(
    name: str,
    x: Sequence[Value],
    y: Sequence[float | None],
    color: str,
    *,
    size: int = 8,
    text: Sequence[str] | None = None,
) -> dict[str, object]:
    marker = {"color": color, "size": size}
    trace: dict[str, object] = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "marker": marker,
    }
    return trace | {"x": list(x), "y": list(y)} | ({"text": list(text)} if text else {})


def _shown(value: Value, dimension: Dimension) -> Value:
    return word(value) if isinstance(dimension, Choices) else value


def _values_axis(config: StudyConfig) -> dict[str, object]:
    return {"title": {"text": _value_name(config)}}


def _value_name(config: StudyConfig) -> str:
    options = config.options
    return options.metric if options.seeds == 1 else f"{options.objective} {options.metric}"


def _title(config: StudyConfig) -> str:
    learner = config.configuration(config.first_point()).learner
    return f"Sweep of {learner.agent} on {learner.env}: {', '.join(config.space)}"


def _write(path: Path, text: str) -> None:
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")
