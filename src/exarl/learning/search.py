"""Proposing points to try, from the points that were tried: CMA-ES and TPE of well-kept libraries.

Both are functions of what was tried and of a seed, so that nothing else has to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from exarl.errors import ConfigError, install

_POOL = 8
"""Generations' worth of points in a proposal, since each episode takes one of them by chance."""


class Tried(NamedTuple):
    """The points of one generation [N, D] and their values [N], of which larger ones are better."""

    points: np.ndarray
    values: np.ndarray


class Search(Protocol):
    """Looks for the best point of a space of D numbers."""

    @property
    def generation(self) -> int:
        """How many points are tried between two proposals."""

    @property
    def best(self) -> np.ndarray:
        """The best point so far."""

    def tell(self, tried: Tried) -> None:
        """Learn what a generation of points is worth."""

    def propose(self) -> np.ndarray:
        """Points to try next, [P, D]."""


class CmaEs:
    """The covariance matrix adaptation evolution strategy (``cmaes``); ``best`` is its mean."""

    def __init__(self, size: int, sigma: float, seed: int, generation: int | None) -> None:
        try:
            from cmaes import CMA
        except ImportError as error:
            raise ConfigError(f"CMA-ES needs {install('sweep')}") from error
        self._size = max(size, 2)  # the library takes no single number: a second one does nothing
        self._cma = CMA(np.zeros(self._size), sigma, seed=0, population_size=generation)
        self._wanted, self._seed, self._told = size, seed, 0

    @property
    def generation(self) -> int:
        return int(self._cma.population_size)

    @property
    def best(self) -> np.ndarray:
        mean: np.ndarray = self._cma.mean[: self._wanted]
        return mean

    def tell(self, tried: Tried) -> None:
        self._told += 1
        points = np.zeros((len(tried.points), self._size))
        points[:, : self._wanted] = tried.points
        pairs = zip(points, -tried.values.astype(float), strict=True)
        self._cma.tell([(point, float(cost)) for point, cost in pairs])

    def propose(self) -> np.ndarray:
        self._cma.reseed_rng(_seed(self._seed, self._told))
        asked = [self._cma.ask() for _ in range(_POOL * self.generation)]
        return np.array(asked)[:, : self._wanted]


class Tpe:
    """Bayesian optimisation by a tree of Parzen estimators (``optuna``) within 4 sigma; ``best`` is the
    point of the largest value."""

    def __init__(self, size: int, sigma: float, seed: int, generation: int | None) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ConfigError(f"Bayesian optimisation needs {install('sweep')}") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._seed, self._told = optuna, seed, 0
        self._bound = bound = 4 * sigma
        self._space = {
            f"{i:06d}": optuna.distributions.FloatDistribution(-bound, bound) for i in range(size)
        }
        self._trials: list[object] = []
        self._best = (-np.inf, np.zeros(size))
        self._generation = generation or 4

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def best(self) -> np.ndarray:
        return self._best[1]

    def tell(self, tried: Tried) -> None:
        self._told += 1
        for point, value in zip(tried.points, tried.values.tolist(), strict=True):
            within = point.astype(float).clip(-self._bound, self._bound)  # they come as float32
            params = dict(zip(self._space, within.tolist(), strict=True))
            self._trials.append(
                self._optuna.trial.create_trial(
                    params=params, distributions=self._space, value=value
                )
            )
            if value > self._best[0]:
                self._best = value, point

    def propose(self) -> np.ndarray:
        sampler = self._optuna.samplers.TPESampler(
            seed=_seed(self._seed, self._told), constant_liar=True, multivariate=False
        )
        study = self._optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(self._trials)
        asked = [study.ask(self._space).params for _ in range(2 * self.generation)]
        return np.array([list(params.values()) for params in asked])


SEARCHES: dict[str, Callable[[int, float, int, int | None], Search]] = {
    "cma-es": CmaEs,
    "bayes": Tpe,
}


def search_by(
    method: str, size: int, sigma: float, seed: int, generation: int | None, tried: Sequence[Tried]
) -> Search:
    """A search of ``size`` numbers that goes on after the generations in ``tried``."""
    search = SEARCHES[method](size, sigma, seed, generation)
    for each in tried:
        search.tell(each)
    return search


def _seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
