"""The age-of-infection epidemic model SEIR++: renewal equation and delays, over ``xp``.

New infections follow from those before them by the renewal equation

    new(t) = R(t) S(t)/N  sum over tau of new(t - tau) w(tau),    R(t) = r0 M(t) (1 + A cos ...)

with w the probability of a serial interval tau. The force of infection is the same for everyone, so
the infected have the ages of the population; only the severity depends on age. Each event
(symptoms, admission, intensive care, death ...) follows the one before it after a gamma-distributed
delay, so every cumulative count is a convolution of past infections with one fixed kernel.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from exarl.envs.functional import repeat
from exarl.types import Array, Namespace

POPULATION = 12_659_682
"""Illinois."""
AGES = np.array(
    [.12000352, .1278914, .13925591, .13494838, .12189751, .12724997, .11627754, .07275651, .03971926]
)  # fmt: skip
"""Shares of the decades of age 0-9 ... 80 and more, United States; they sum to 1."""
SYMPTOMATIC = np.array([0.057, 0.054, 0.294, 0.668, 0.614, 0.83, 0.99, 0.995, 0.999])
HOSPITALISED = np.array([0.001, 0.003, 0.012, 0.032, 0.049, 0.102, 0.166, 0.243, 0.273])
CRITICAL = 0.9 * np.array([0.05, 0.05, 0.05, 0.05, 0.063, 0.122, 0.274, 0.432, 0.709])
DEAD = 1.2 * np.array([0.3, 0.3, 0.3, 0.3, 0.3, 0.4, 0.4, 0.5, 0.5])

SERIAL = (4.0, 3.25)
"""Mean and standard deviation of the serial interval in days; likewise below."""
DELAYS = {
    "symptomatic": (5.5, 2.0),
    "admitted": (6.5, 1.6),
    "icu": (3.0, 1.0),
    "dead": (7.5, 5.0),
    "ward": (9.0, 2.2),
    "recovered": (9.0, 6.0),
    "discharged": (9.0, 6.0),
}
FOLLOWS = {
    "symptomatic": None,
    "admitted": "symptomatic",
    "icu": "admitted",
    "dead": "icu",
    "ward": "icu",  # back from intensive care
    "recovered": "admitted",  # without intensive care
    "discharged": "ward",
}
EVENTS = tuple(FOLLOWS)
"""The events that are counted."""

SERIAL_DAYS, MEMORY_DAYS = 42, 90
"""Days in which an infection infects others, and in which it may lead to an event; the probabilities
beyond are 1e-6 and 3e-5."""


class Kernels(NamedTuple):
    """The kernels for past infections; the newest infections come last."""

    before: Array  # [steps, steps of SERIAL_DAYS], pressure of past infections on each step to come
    response: Array  # [steps, steps], pressure of an infection in one step on the others
    events: Array  # [events, steps of MEMORY_DAYS], probability that the event has happened
    shares: Array  # [events, ages], probability of the event for one infection, by age


def gamma_steps(mean: float, std: float, dt: float, steps: int) -> np.ndarray:
    """Probabilities that a gamma-distributed delay ends in each of the first ``steps`` steps."""
    from scipy.special import gammainc  # type: ignore[import-untyped, unused-ignore]

    shape, scale = (mean / std) ** 2, std**2 / mean
    cumulative: np.ndarray = gammainc(shape, np.arange(steps + 1) * dt / scale)
    return np.diff(cumulative)


def event_shares(ifr: float) -> dict[str, np.ndarray]:
    """Probability of each event for an infection, by age; symptoms scaled to the fatality ``ifr``."""
    fatal = float(AGES @ (SYMPTOMATIC * HOSPITALISED * CRITICAL * DEAD))
    symptomatic = SYMPTOMATIC * ifr / fatal
    admitted = symptomatic * HOSPITALISED
    icu = admitted * CRITICAL
    ward = icu * (1 - DEAD)
    return {
        "symptomatic": symptomatic,
        "admitted": admitted,
        "icu": icu,
        "dead": icu * DEAD,
        "ward": ward,
        "recovered": admitted * (1 - CRITICAL),
        "discharged": ward,
    }


def make_kernels(dt: float, ifr: float, steps: int) -> Kernels:
    """The model's kernels, in NumPy, for ``steps`` steps of ``dt`` days at a time."""
    seen = round(SERIAL_DAYS / dt)
    serial = gamma_steps(*SERIAL, dt, seen)
    # Probability of a serial interval of n steps, n at least 1.
    interval = np.concatenate([[0.0], serial / serial.sum(), np.zeros(steps)])
    ahead = np.arange(steps)
    kept = round(MEMORY_DAYS / dt)
    density: dict[str | None, np.ndarray] = {None: np.eye(1, kept)[0]}
    for event, before in FOLLOWS.items():
        delay = gamma_steps(*DELAYS[event], dt, kept - 1)
        # An event follows the previous one after at least one step.
        density[event] = np.convolve(density[before], np.concatenate([[0.0], delay]))[:kept]
    happened = np.stack([np.cumsum(density[event]) for event in EVENTS])
    shares = event_shares(ifr)
    return Kernels(
        interval[ahead[:, None] + np.arange(seen, 0, -1)],
        interval[np.maximum(ahead - ahead[:, None], 0)],
        happened[:, ::-1].copy(),
        np.stack([shares[event] for event in EVENTS]),
    )


def season(xp: Namespace, day: Array, amplitude: float) -> Array:
    """The seasonal factor of the reproduction number on a day of the year; highest on 16 January."""
    return 1 + amplitude * xp.cos(2 * math.pi * (day - 15) / 365)


def spread(
    xp: Namespace, kernels: Kernels, reproduction: Array, susceptible: Array, recent: Array
) -> tuple[Array, Array]:
    """Susceptible people after one step for each of ``reproduction``, and the infections of each step.

    ``reproduction`` is R over the population; ``recent`` [steps of SERIAL_DAYS] are the infections so
    far, the newest last.
    """

    def step(carry: tuple[int, Array, Array]) -> tuple[int, Array, Array]:
        k, susceptible, pressure = carry
        infected = reproduction[k] * susceptible * pressure[k]
        return k + 1, susceptible - infected, pressure + infected * kernels.response[k]

    # The pressure of earlier infections on each step; a new infection adds to the steps after it.
    pressure = kernels.before @ recent
    _, after, pressure = repeat(xp, len(reproduction), step, (0, susceptible, pressure))
    shares = reproduction * pressure
    left = susceptible * xp.concatenate([xp.ones(1), xp.cumprod(1 - shares)[:-1]])
    return after, left * shares


def occupancy(totals: dict[str, Array]) -> tuple[Array, Array]:
    """Beds in use in intensive care and in the other wards, from cumulative counts."""
    critical = totals["icu"] - totals["ward"] - totals["dead"]
    other = totals["admitted"] - totals["icu"] + totals["ward"]
    return critical, other - totals["recovered"] - totals["discharged"]
