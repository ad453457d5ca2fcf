"""``--executor fused``: a batch of settings with all their seeds as one compiled program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exarl.errors import ConfigError, ExarlError
from exarl.records.signals import StopSignals
from exarl.sweep.manager import Display
from exarl.sweep.space import Choices
from exarl.sweep.spec import StudyConfig
from exarl.sweep.study import Claim, Study
from exarl.sweep.trial import summed_up

MAX_BATCH = 512

RunPopulation = Callable[
    [Sequence[str], Sequence[Mapping[str, float]], Sequence[int], Path], list[list[float]]
]
"""(arguments of the training, settings, seeds, run directory) -> values [setting][seed]."""


def check_fused(config: StudyConfig) -> None:
    """ConfigError when a study cannot run as one program."""
    if config.options.pruner != "none":
        raise ConfigError("executor fused trains all settings together: omit --pruner")
    if config.options.procs > 1:
        raise ConfigError("executor fused runs in one process: omit --procs")
    if config.options.metric != "last_reward_mean":
        raise ConfigError("executor fused supports only the metric last_reward_mean")
    if config.configuration(config.first_point()).learner.workflow != "fused":
        raise ConfigError("executor fused needs --workflow fused")
    for key, dimension in config.space.items():
        values = dimension.values if isinstance(dimension, Choices) else (dimension.low,)
        if any(isinstance(value, str | bool) for value in values):
            raise ConfigError(f"executor fused varies only numbers, not {key}")


def run_fused(study: Study, run_population: RunPopulation, display: Display) -> int | None:
    """Run settings until the study is done; return the signal that stopped it early, else None.

    A batch has ``--batch`` settings, by default all that are left, up to 512.
    """
    config = study.config
    size = config.options.batch or MAX_BATCH
    study.prepare()
    display.update(study.rows())
    words = [*config.words({})]
    with StopSignals() as signals:
        while signals.received is None and (claims := _ask(study, size)):
            points = [{key: float(v) for key, v in one.point.items()} for one in claims]
            # The same settings continue the run of an interrupted batch, or read its result.
            name = f"{claims[0].setting:04d}-{claims[-1].setting:04d}_{len(claims)}"
            place = study.folder.path / "batches" / name
            display.note(f"{len(claims)} settings as one program, in {place}")
            try:
                values = run_population(words, points, config.seeds(), place)
            except ExarlError as error:
                for one in claims:
                    if signals.received is None:
                        study.fail(one, str(error))
                    else:
                        study.lose(one)
            except BaseException:
                for one in claims:
                    study.lose(one)
                raise
            else:
                for one, found in zip(claims, values, strict=True):
                    _tell(study, one, found)
            display.update(study.rows())
    return signals.received


def _ask(study: Study, size: int) -> list[Claim]:
    claims: list[Claim] = []
    while len(claims) < size and (one := study.ask()) is not None:
        claims.append(one)
    return claims


def _tell(study: Study, claim: Claim, values: Sequence[float]) -> None:
    bad = [value for value in values if not math.isfinite(value)]
    if bad:
        study.fail(claim, f"last_reward_mean is {bad[0]}")
        return
    seeds = dict(zip(study.config.seeds(), values, strict=True))
    study.complete(claim, seeds, summed_up(values, study.config.options.objective))
