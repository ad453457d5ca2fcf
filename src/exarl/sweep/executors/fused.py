"""``--executor fused``: a whole batch of settings with all their seeds as one compiled program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exarl.errors import ConfigError, ExarlError
from exarl.records.signals import StopSignals
from exarl.sweep.manager import Display
from exarl.sweep.space import Choices
from exarl.sweep.spec import StudyConfig
from exarl.sweep.study import Asked, Study
from exarl.sweep.trial import summed_up

MAX_BATCH = 512

RunPopulation = Callable[
    [Sequence[str], Sequence[Mapping[str, float]], Sequence[int], Path], list[list[float]]
]
"""(words of the training, settings, seeds, run directory) -> values [setting][seed]."""


def check_fused(config: StudyConfig) -> None:
    """ConfigError when a study cannot be one program."""
    if config.options.pruner != "none":
        raise ConfigError("executor fused trains all settings together: leave --pruner out")
    if config.options.procs > 1:
        raise ConfigError("executor fused runs in this process: leave --procs out")
    if config.options.metric != "last_reward_mean":
        raise ConfigError("executor fused knows the metric last_reward_mean only")
    first = {key: dimension.ends()[0] for key, dimension in config.space.items()}
    if config.configuration(first).learner.workflow != "fused":
        raise ConfigError("executor fused needs --workflow fused")
    for key, dimension in config.space.items():
        values = dimension.values if isinstance(dimension, Choices) else (dimension.low,)
        if any(isinstance(value, str | bool) for value in values):
            raise ConfigError(f"executor fused varies numbers only, not {key}")


def run_fused(study: Study, run_population: RunPopulation, display: Display) -> int | None:
    """Work until the study is done; the signal that ended it early, else None.

    A batch is ``--batch`` settings, by default all that are left up to 512.
    """
    config = study.config
    size = config.options.batch or MAX_BATCH
    study.prepare()
    display.update(study.rows())
    words = [*config.words({})]
    with StopSignals() as signals:
        while signals.received is None and (asked := _ask(study, size)):
            points = [{key: float(v) for key, v in one.point.items()} for one in asked]
            # The same settings again continue, or only read, what a lost batch left.
            name = f"{asked[0].setting:04d}-{asked[-1].setting:04d}_{len(asked)}"
            place = study.folder.path / "batches" / name
            display.note(f"{len(asked)} settings as one program, in {place}")
            try:
                values = run_population(words, points, config.seeds(), place)
            except ExarlError as error:
                for one in asked:
                    if signals.received is None:
                        study.fail(one, str(error))
                    else:
                        study.lose(one)
            except BaseException:
                for one in asked:
                    study.lose(one)
                raise
            else:
                for one, found in zip(asked, values, strict=True):
                    _tell(study, one, found)
            display.update(study.rows())
    return signals.received


def _ask(study: Study, size: int) -> list[Asked]:
    asked: list[Asked] = []
    while len(asked) < size and (one := study.ask()) is not None:
        asked.append(one)
    return asked


def _tell(study: Study, asked: Asked, values: Sequence[float]) -> None:
    bad = [value for value in values if not math.isfinite(value)]
    if bad:
        study.fail(asked, f"last_reward_mean is {bad[0]}")
        return
    seeds = dict(zip(study.config.seeds(), values, strict=True))
    study.complete(asked, seeds, summed_up(values, study.config.options.objective))
