"""Who chooses the settings. What a setting is depends on the sweep's seed, the setting's number and
what has been told so far, on nothing else."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from exarl.sweep import gp
from exarl.sweep.space import Choices, Point, Space, Value, grid, random_point
from exarl.sweep.spec import StudyConfig

SETTING = "setting"
"""The attribute of an Optuna trial that holds the number of its setting."""


def known_points(config: StudyConfig) -> list[dict[str, Value]] | None:
    """The settings of a study whose sampler needs no results; None: of one that does."""
    options = config.options
    if options.sampler == "grid":
        return grid(config.space, options.points)
    if options.sampler == "random":
        numbers = range(config.trials)
        return [random_point(config.space, options.sweep_seed, n) for n in numbers]
    return None


def make_sampler(config: StudyConfig) -> Any:
    """The sampler of a study, for Optuna."""
    options = config.options
    if options.sampler == "gp":
        return ProcessSampler(config.space, options.sweep_seed)
    return SeededSampler(options.sweep_seed)


def make_pruner(config: StudyConfig) -> Any:
    """The pruner of a study; steps are its marks."""
    from optuna import pruners

    if config.options.pruner == "median":
        return pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1)
    if config.options.pruner == "halving":
        return pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    return pruners.NopPruner()


def suggest(trial: Any, space: Space) -> dict[str, Value]:
    """Ask Optuna for the setting of ``trial``."""
    point: dict[str, Value] = {}
    for key, dimension in space.items():
        if isinstance(dimension, Choices):
            point[key] = trial.suggest_categorical(key, dimension.values)
        elif dimension.whole:
            low, high, step = int(dimension.low), int(dimension.high), int(dimension.step or 1)
            point[key] = trial.suggest_int(key, low, high, step=step, log=dimension.log)
        else:
            point[key] = trial.suggest_float(
                key, dimension.low, dimension.high, step=dimension.step, log=dimension.log
            )
    return point


class SeededSampler:
    """Optuna's tree-structured Parzen estimator, begun anew for every setting."""

    def __init__(self, sweep_seed: int) -> None:
        self._sweep_seed = sweep_seed

    def _fresh(self, trial: Any) -> Any:
        from optuna.samplers import TPESampler

        number = trial.user_attrs.get(SETTING, trial.number)
        seed = int(np.random.SeedSequence([self._sweep_seed, number]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older versions call constant_liar experimental
            return TPESampler(seed=seed, constant_liar=True)

    def before_trial(self, study: Any, trial: Any) -> None:
        self._one = self._fresh(trial)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        pass

    def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
        return self._one.infer_relative_search_space(study, trial)

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
        return self._one.sample_relative(study, trial, search_space)

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        return self._one.sample_independent(study, trial, name, distribution)

    def reseed_rng(self) -> None:
        pass


class ProcessSampler:
    """The Gaussian process of ``gp``, in the shape that Optuna expects of a sampler."""

    def __init__(self, space: Space, sweep_seed: int) -> None:
        self._space, self._sweep_seed = space, sweep_seed
        self._point: dict[str, Value] = {}

    def before_trial(self, study: Any, trial: Any) -> None:
        self._point = {}

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        pass

    def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
        return {}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
        return {}

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        if not self._point:  # all parameters of a setting are chosen together
            self._point = self._choose(study, trial)
        return self._point[name]

    def reseed_rng(self) -> None:
        pass

    def _choose(self, study: Any, trial: Any) -> dict[str, Value]:
        number = trial.user_attrs.get(SETTING, trial.number)
        told: list[tuple[Point, float]] = []
        pending: list[Point] = []
        for other in study.get_trials(deepcopy=False):
            whole = self._space.keys() <= other.params.keys()
            if whole and other.state.is_finished() and other.value is not None:
                told.append((other.params, other.value))
            elif whole and other.number != trial.number and not other.state.is_finished():
                pending.append(other.params)
        if len(told) < gp.STARTUP:
            return gp.early(self._space, self._sweep_seed, number)
        rng = np.random.default_rng([self._sweep_seed, number])
        return gp.suggest(self._space, told, pending, rng)
