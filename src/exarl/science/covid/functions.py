"""The epidemic as an environment: observations, actions and costs of a planner."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from exarl.envs.functional import Functions, normal, number, split, uniform
from exarl.science.covid import kernel
from exarl.science.figure import new_figure, to_rgb
from exarl.types import Action, Array, Namespace, Rng

CHANGES = (0.0, 0.01, 0.05, 0.1, -0.01, -0.05, -0.1)
"""The change of the contact level M by each action."""
WEEK = 7
WEEKS_KEPT = 13
NAMES = (
    "contact level M", "season, cosine", "season, sine", "susceptible", "new infections",
    "growth of infections", "new symptomatic", "new admissions", "other hospital beds in use",
    "intensive care beds / capacity", "intensive care beds", "new deaths",
)  # fmt: skip
"""The entries of an observation; 'new': in the last week; people n as log10(1 + n)/6."""


class Epidemic(NamedTuple):
    """An epidemic at the end of a week."""

    infections: Array  # [steps of the kernel's memory], new ones in each step, the newest last
    older: Array  # infections before those
    susceptible: Array
    weekly: Array  # [2], infections of the week before and of this week
    totals: Array  # [2, events], cumulative counts a week ago and now
    critical: Array  # [days], intensive care beds in use at the end of each, the newest last
    measures: Array  # [weeks], contact levels, the newest last
    asked: Array  # requested contact level, before it is clipped to [0, 1]
    day: Array
    r0: Array


class Covid(Functions):
    """See ``ExaCovid`` for the parameters."""

    def __init__(
        self,
        r0: float,
        r0_spread: float,
        ifr: float,
        population: float,
        initial_infected: float,
        initial_spread: float,
        icu_capacity: float,
        start: float,
        season: float,
        reward: str,
        costs: tuple[float, float, float, float],
        dt: float,
        xp: Namespace = np,
    ) -> None:
        super().__init__(xp)
        self.observation_space = spaces.Box(-2.0, 2.0, (len(NAMES),), np.float32)
        self.action_space = spaces.Discrete(len(CHANGES))
        self.steps = round(WEEK / dt)
        if reward not in ("planner", "exarl"):
            raise ValueError(f"reward must be 'planner' or 'exarl', not {reward!r}")
        if not 0 < dt <= 1 or abs(self.steps * dt - WEEK) > 1e-9 or self.steps % WEEK:
            raise ValueError(f"dt must be a day or a whole fraction of it, not {dt}")
        if min(r0, ifr, population, initial_infected, icu_capacity) <= 0 or not 0 <= start <= 1:
            raise ValueError("r0, ifr, people and beds must be positive, start within [0, 1]")
        if min(r0_spread, initial_spread, *costs) < 0 or r0_spread >= 1 or abs(season) >= 1:
            raise ValueError("spreads and costs must not be negative, r0_spread and season below 1")
        self.r0, self.r0_spread, self.ifr, self.dt = r0, r0_spread, ifr, dt
        self.population, self.icu_capacity = float(population), icu_capacity
        self.initial_infected, self.initial_spread = initial_infected, initial_spread
        self.start, self.season, self.literal = start, season, reward == "exarl"
        self.closure_cost, self.death_cost, self.icu_cost, self.overflow_cost = costs
        made = kernel.make_kernels(dt, ifr, self.steps)
        if r0 * (1 + r0_spread) * (1 + abs(season)) * made.response.max() >= 1:
            raise ValueError(f"dt of {dt} days is too long for r0 of {r0}")
        self.kernels = kernel.Kernels(*(xp.asarray(array) for array in made))
        self._events, self._critical = (xp.asarray(array) for array in self._read_outs(made))
        self._shares = xp.asarray(made.shares @ kernel.AGES)
        self._changes = xp.asarray(CHANGES)

    def _read_outs(self, made: kernel.Kernels) -> tuple[np.ndarray, np.ndarray]:
        """Matrices whose products with past infections give the counts now, and the beds in use on each
        of the last seven days."""
        rows = np.asarray(made.events * (made.shares @ kernel.AGES)[:, None])
        beds, _ = kernel.occupancy(dict(zip(kernel.EVENTS, rows, strict=True)))
        per_day = self.steps // WEEK
        shifts = [per_day * back for back in range(WEEK - 1, -1, -1)]
        days = [np.concatenate([beds[shift:], np.zeros(shift)]) for shift in shifts]
        return rows, np.stack(days)

    def initial(self, rng: Rng, params: None = None) -> Epidemic:
        xp = self.xp
        one, two = split(rng, 2)
        r0 = self.r0 * (1 + self.r0_spread * uniform(one, (), -1.0, 1.0))
        infected = self.initial_infected * xp.exp(self.initial_spread * normal(two))
        infected = xp.minimum(infected, 0.5 * self.population)
        steps = self._events.shape[1]
        return Epidemic(
            xp.concatenate([xp.zeros(steps - 1), infected[None]]),
            xp.zeros(()),
            self.population - infected,
            xp.stack([infected, infected]),
            xp.zeros((2, len(kernel.EVENTS))),
            xp.zeros(WEEKS_KEPT * WEEK),
            xp.full(WEEKS_KEPT, self.start),
            xp.asarray(self.start),
            xp.zeros(()),
            xp.asarray(r0),
        )

    def transition(
        self, state: Epidemic, action: Action, rng: Rng, params: None = None
    ) -> Epidemic:
        """The week after ``action``, with a constant contact level."""
        xp = self.xp
        asked = state.measures[-1] + self._changes[action]
        level = xp.clip(asked, 0.0, 1.0)
        days = state.day + self.dt * xp.arange(self.steps)
        reproduction = state.r0 * level * kernel.season(xp, days, self.season)
        recent = state.infections[-self.kernels.before.shape[1] :]
        susceptible, new = kernel.spread(
            xp, self.kernels, reproduction / self.population, state.susceptible, recent
        )
        left, kept = state.infections[: self.steps], state.infections[self.steps :]
        infections = xp.concatenate([kept, new])
        older = state.older + left.sum()
        totals = self._events @ infections + self._shares * older
        return Epidemic(
            infections,
            older,
            susceptible,
            xp.stack([state.weekly[1], new.sum()]),
            xp.stack([state.totals[1], totals]),
            xp.concatenate([state.critical[WEEK:], self._critical @ infections]),
            xp.concatenate([state.measures[1:], level[None]]),
            asked,
            state.day + WEEK,
            state.r0,
        )

    def observation(self, state: Epidemic, rng: Rng, params: None = None) -> Array:
        xp = self.xp
        new = self._counts(state.totals[1] - state.totals[0])
        beds = kernel.occupancy(self._counts(state.totals[1]))[1]
        growth = xp.log((state.weekly[1] + 1) / (state.weekly[0] + 1))
        angle = 2 * math.pi * (state.day - 15) / 365

        def people(n: Array) -> Array:
            return xp.log10(1 + xp.maximum(n, 0.0)) / 6

        numbers = xp.stack(
            [
                state.measures[-1],
                xp.cos(angle),
                xp.sin(angle),
                state.susceptible / self.population,
                people(state.weekly[1]),
                growth / 2,
                people(new["symptomatic"]),
                people(new["admitted"]),
                people(beds),
                state.critical[-1] / self.icu_capacity,
                people(state.critical[-1]),
                people(new["dead"]),
            ]
        )
        return xp.clip(numbers, -2.0, 2.0).astype(np.float32)

    def reward(
        self, state: Epidemic, action: Action, next_state: Epidemic, rng: Rng, params: None = None
    ) -> Array:
        xp = self.xp
        if self.literal:
            inside = (next_state.asked >= 0) & (next_state.asked <= 1)
            paid = self._load(next_state) / (self.icu_capacity + 1)
            paid = xp.where(inside, paid, -99.0)
            return xp.where(self._full(next_state), -499.0, paid)
        # A death is charged at the infection that leads to it, so that delaying it beyond the end of
        # the episode gains nothing.
        deaths = self.ifr * next_state.weekly[1]
        return -(
            self.closure_cost * (1 - next_state.measures[-1])
            + self.death_cost * deaths
            + self.icu_cost * next_state.critical[-WEEK:].mean() / self.icu_capacity
            + xp.where(self._full(next_state), self.overflow_cost, 0.0)
        )

    def terminal(self, state: Epidemic, rng: Rng, params: None = None) -> Array:
        return self._full(state)

    def state_info(self, state: Epidemic, params: None = None) -> dict[str, object]:
        """Numbers of people; ``dead_by_age`` in decades from 0-9 to 80 and more."""
        counts = self._counts(state.totals[1])
        critical, other = kernel.occupancy(counts)
        dead = self.kernels.shares[kernel.EVENTS.index("dead")] * kernel.AGES / self.ifr
        return {
            "day": number(self.xp, state.day),
            "mitigation": number(self.xp, state.measures[-1]),
            "susceptible": number(self.xp, state.susceptible),
            "infected": number(self.xp, self.population - state.susceptible),
            "admitted": number(self.xp, counts["admitted"]),
            "icu_admitted": number(self.xp, counts["icu"]),
            "critical": number(self.xp, critical),
            "hospitalised": number(self.xp, critical + other),
            "dead": number(self.xp, counts["dead"]),
            "dead_by_age": self.xp.asarray(dead * counts["dead"]),
        }

    def picture(self, state: Epidemic) -> np.ndarray:
        """New infections per day, intensive care beds in use and contact level of the last 90 days."""
        per_day = self.steps // WEEK
        new = np.asarray(state.infections)
        beds = np.asarray(state.critical)
        days = float(state.day) + (np.arange(len(new)) + 1 - len(new)) / per_day
        weeks = float(state.day) + WEEK * (np.arange(WEEKS_KEPT) - WEEKS_KEPT)
        figure = new_figure(6.4, 6.0)
        upper, middle, lower = figure.subplots(3, 1, sharex=True)
        upper.semilogy(days, np.maximum(new * per_day, 1e-1), color="#1f5fa8")
        upper.set(ylabel="infections per day", ylim=(1, None), title=f"day {float(state.day):.0f}")
        middle.plot(float(state.day) + np.arange(len(beds)) + 1 - len(beds), beds, color="#c8641e")
        middle.axhline(
            self.icu_capacity, color="#333333", linestyle="--", linewidth=1, label="capacity"
        )
        middle.legend(loc="upper left")
        middle.set(
            ylabel="beds of intensive care\nin use",
            ylim=(0, 1.2 * max(self.icu_capacity, beds.max())),
        )
        lower.step([*weeks, float(state.day)], [*state.measures, state.measures[-1]], where="post")
        lower.set(ylabel="contact level M\n(1: as usual)", xlabel="day of the year", ylim=(0, 1))
        lower.set_xlim(max(days[0], 0.0), max(float(state.day), WEEK))
        return to_rgb(figure)

    def _counts(self, totals: Array) -> dict[str, Array]:
        return {event: totals[k] for k, event in enumerate(kernel.EVENTS)}

    def _load(self, state: Epidemic) -> Array:
        """The number compared with the capacity: most beds in use in the week or, for the original
        EXARL's reward, all admissions so far."""
        if self.literal:
            return state.totals[1, kernel.EVENTS.index("icu")]
        return state.critical[-WEEK:].max()

    def _full(self, state: Epidemic) -> Array:
        return self._load(state) > self.icu_capacity
