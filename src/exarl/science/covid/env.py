"""ExaCovid-v0: when to restrict contacts and when to allow them, so that intensive care suffices."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from exarl.envs.functional import FunctionalEnv
from exarl.science.covid.functions import CHANGES, Covid
from exarl.science.covid.kernel import POPULATION


class ExaCovid(FunctionalEnv):
    """Control of an epidemic in the state of Illinois from 1 January 2020, week by week.

    An action changes the contact level M (1: life as usual, 0: no contacts) by 0, 0.01, 0.05, 0.1,
    -0.01, -0.05 or -0.1. Observation: see ``covid.functions.NAMES``. The reward is minus the week's
    costs: ``closure_cost`` times 1 - M, ``death_cost`` for each death among those infected in the week,
    and ``icu_cost`` times the share of intensive care beds in use. The episode ends, at the cost
    ``overflow_cost``, when more people need intensive care than there are beds.

    Each episode draws its own r0, uniform in ``r0`` (1 +- ``r0_spread``), and first infections,
    log-normal with median ``initial_infected``; with both spreads 0 every episode is the published one.
    ``reward="exarl"`` is exactly that of the original EXARL: it compares all admissions to intensive
    care so far with the capacity, and rewards them.
    """

    def __init__(
        self,
        r0: float = 2.3,
        r0_spread: float = 0.1,
        ifr: float = 0.003,
        population: float = POPULATION,
        initial_infected: float = 200.0,
        initial_spread: float = 0.5,
        icu_capacity: float = 1000.0,
        start: float = 0.5,
        season: float = 0.1,
        reward: Literal["planner", "exarl"] = "planner",
        closure_cost: float = 1.0,
        death_cost: float = 0.002,
        icu_cost: float = 1.0,
        overflow_cost: float = 50.0,
        dt: float = 0.05,
        render_mode: str | None = None,
    ) -> None:
        make = partial(
            Covid,
            r0=r0,
            r0_spread=r0_spread,
            ifr=ifr,
            population=population,
            initial_infected=initial_infected,
            initial_spread=initial_spread,
            icu_capacity=icu_capacity,
            start=start,
            season=season,
            reward=reward,
            costs=(closure_cost, death_cost, icu_cost, overflow_cost),
            dt=dt,
        )
        super().__init__(make, render_mode)


def hold(observation: np.ndarray) -> int:
    """Baseline: never change the contact level."""
    return CHANGES.index(0.0)


def follow_growth(observation: np.ndarray) -> int:
    """Baseline: lower the contact level while infections grow, raise it while they fall."""
    return CHANGES.index(-0.05 if observation[5] > 0 else 0.05)
