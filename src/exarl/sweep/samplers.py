"""How settings are chosen. A setting depends on the sweep's seed, its own number and the results so
far, and on nothing else."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from exarl.sweep import gp
from exarl.sweep.space import Choices, Point, Space, Value, grid, random_point
from exarl.sweep.spec import StudyConfig

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial, Trial

SETTING = "setting"
"""The attribute of an Optuna trial that holds the number of its setting."""


def known_points(config: StudyConfig) -> list[dict[str, Value]] | None:
    """The settings of a study whose sampler needs no results; None for a sampler that needs them."""
    options = config.options
    if options.sampler == "grid":
        return grid(config.space, options.points)
    if options.sampler == "random":
        numbers = range(config.trials)
        return [random_point(config.space, options.sweep_seed, n) for n in numbers]
    return None


def make_sampler(config: StudyConfig) -> SeededSampler | ProcessSampler:
    """The sampler of a study, for Optuna."""
    options = config.options
    if options.sampler == "gp":
        return ProcessSampler(config.space, options.sweep_seed)
    return SeededSampler(options.sweep_seed)


def make_pruner(config: StudyConfig) -> BasePruner:
    """The pruner of a study; its steps are the marks of a training."""
    from optuna import pruners

    if config.options.pruner == "median":
        return pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1)
    if config.options.pruner == "halving":
        return pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    return pruners.NopPruner()


def suggest(trial: Trial, space: Space) -> dict[str, Value]:
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


class _Sampler:
    """What Optuna calls of a sampler, with nothing to do."""

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        pass

    def after_trial(self, *_: object) -> None:
        pass

    def infer_relative_search_space(self, *_: object) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(self, *_: object) -> dict[str, Value]:
        return {}

    def reseed_rng(self) -> None:
        pass


class SeededSampler(_Sampler):
    """Optuna's tree-structured Parzen estimator, created again for every setting: its random numbers
    depend on the sweep's seed and the setting's number alone."""

    def __init__(self, sweep_seed: int) -> None:
        self._sweep_seed = sweep_seed

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        from optuna.samplers import TPESampler

        number = trial.user_attrs.get(SETTING, trial.number)
        seed = int(np.random.SeedSequence([self._sweep_seed, number]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older versions call constant_liar experimental
            self._tpe = TPESampler(seed=seed, constant_liar=True)

    def infer_relative_search_space(self, *given: object) -> dict[str, BaseDistribution]:
        return self._tpe.infer_relative_search_space(*given)

    def sample_relative(self, *given: object) -> dict[str, Value]:
        return self._tpe.sample_relative(*given)

    def sample_independent(self, *given: object) -> Value:
        return self._tpe.sample_independent(*given)


class ProcessSampler(_Sampler):
    """The Gaussian process of ``gp`` as a sampler for Optuna."""

    def __init__(self, space: Space, sweep_seed: int) -> None:
        self._space, self._sweep_seed = space, sweep_seed
        self._point: dict[str, Value] = {}

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._point = {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, name: str, _: BaseDistribution
    ) -> Value:
        if not self._point:  # all parameters of a setting are chosen together
            self._point = self._choose(study, trial)
        return self._point[name]

    def _choose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Value]:
        number = trial.user_attrs.get(SETTING, trial.number)
        results: list[tuple[Point, float]] = []
        pending: list[Point] = []
        for other in study.get_trials(deepcopy=False):
            whole = self._space.keys() <= other.params.keys()
            if whole and other.state.is_finished() and other.value is not None:
                results.append((other.params, other.value))
            elif whole and other.number != trial.number and not other.state.is_finished():
                pending.append(other.params)
        if len(results) < gp.STARTUP:
            return gp.early(self._space, self._sweep_seed, number)
        rng = np.random.default_rng([self._sweep_seed, number])
        return gp.suggest(self._space, results, pending, rng)
