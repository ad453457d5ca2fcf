"""ExaCovid-v0: the epidemic against theory and published figures, and what the planner pays for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from exarl.science.covid import kernel
from exarl.science.covid.env import ExaCovid, follow_growth, hold
from exarl.science.covid.functions import CHANGES, Covid

CERTAIN: dict[str, Any] = {"r0_spread": 0.0, "initial_spread": 0.0}
OPEN = {**CERTAIN, "start": 1.0, "season": 0.0}


class Course:
    """An epidemic at a constant contact level, week after week, also when intensive care is full."""

    def __init__(self, weeks: int, **parameters: Any) -> None:
        self.functions = ExaCovid(**parameters).functions
        assert isinstance(self.functions, Covid)
        self.states = [self.functions.initial(np.random.default_rng(0))]
        for _ in range(weeks):
            self.states.append(self.functions.transition(self.states[-1], 0, None))
        self.last = self.states[-1]

    @property
    def critical(self) -> np.ndarray:
        """Beds in use at the end of each day."""
        return np.concatenate([state.critical[-7:] for state in self.states[1:]])

    @property
    def daily(self) -> np.ndarray:
        """New infections in each of the steps, after the first ones."""
        steps = self.functions.steps
        return np.concatenate([state.infections[-steps:] for state in self.states[1:]])

    def share_infected(self, days: int) -> float:
        """Of the population, this many days after the start."""
        first = self.functions.population - self.states[0].susceptible
        infected = first + self.daily[: round(days / self.functions.dt)].sum()
        return float(infected / self.functions.population)

    def total(self, event: str) -> float:
        return float(self.last.totals[1, kernel.EVENTS.index(event)])


@pytest.fixture(scope="module")
def unchecked() -> Course:
    """No mitigation, no season, until it is over."""
    return Course(58, **OPEN)


def final_size(r0: float) -> float:
    """The root of z = 1 - exp(-r0 z) above 0."""
    z = 1.0
    for _ in range(200):
        z = 1 - math.exp(-r0 * z)
    return z


# -- the epidemic against theory -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("r0", "dt", "weeks", "error"),
    [(2.3, 0.05, 58, 0.001), (2.3, 0.1, 58, 0.002), (1.5, 0.1, 70, 0.002), (3.2, 0.1, 58, 0.002)],
)
def test_final_size_is_that_of_the_theory(r0: float, dt: float, weeks: int, error: float) -> None:
    last = Course(weeks, r0=r0, dt=dt, **OPEN).last
    size = 1 - float(last.susceptible) / kernel.POPULATION
    assert size == pytest.approx(final_size(r0), abs=error)


def test_final_size_has_the_published_value_and_converges_with_the_step(unchecked: Course) -> None:
    sizes = [Course(58, dt=dt, **OPEN).last.susceptible for dt in (0.1, 0.025)]
    sizes.insert(1, unchecked.last.susceptible)
    coarse, published, fine = (1 - float(s) / kernel.POPULATION for s in sizes)
    assert (coarse, published, fine) == pytest.approx((0.86395, 0.86319, 0.86281), abs=2e-5)
    theory = final_size(2.3)
    assert (published - theory) / (coarse - theory) == pytest.approx(0.5, abs=0.02)  # first order


@pytest.mark.parametrize(
    ("r0", "rate"), [(2.3, 0.277583), (1.5, 0.116229), (1.15, 0.036603)]
)  # (R^(1/k) - 1)/theta of the serial interval's gamma distribution
def test_growth_of_a_young_epidemic(r0: float, rate: float) -> None:
    new = Course(12, r0=r0, population=1e18, dt=0.025, **OPEN).daily
    seen = math.log(new[-1] / new[-1 - 400]) / 10
    assert seen == pytest.approx(rate, rel=0.006)


def test_the_peak_of_an_unchecked_epidemic(unchecked: Course) -> None:
    new = unchecked.daily
    peak = int(new.argmax())
    assert 0.05 * (peak + 1) == pytest.approx(37.95)
    assert new[peak] / 0.05 == pytest.approx(7.22e5, rel=1e-3)
    left = 1 - unchecked.share_infected(0) - new[: peak + 1].sum() / kernel.POPULATION
    assert left == pytest.approx(0.584, abs=1e-3)


def test_what_an_unchecked_epidemic_leads_to(unchecked: Course) -> None:
    assert unchecked.total("icu") == pytest.approx(58_509, rel=1e-4)
    assert unchecked.total("dead") == pytest.approx(32_783, rel=1e-4)
    assert unchecked.critical.max() == pytest.approx(24_282, rel=3e-3)  # day by day
    assert int(unchecked.critical.argmax()) + 1 in (57, 58)


def test_shares_of_an_infection() -> None:
    shares = {name: float(p @ kernel.AGES) for name, p in kernel.event_shares(0.003).items()}
    assert kernel.AGES.sum() == pytest.approx(1, abs=1e-12)
    assert shares["symptomatic"] == pytest.approx(0.147845, abs=1e-6)
    assert shares["admitted"] == pytest.approx(0.0174949, abs=1e-7)
    assert shares["icu"] == pytest.approx(0.00535416, abs=1e-8)
    assert shares["dead"] == pytest.approx(0.003, abs=1e-15)
    assert (np.diff(kernel.event_shares(0.003)["dead"]) > 0).all(), "the older, the deadlier"


@pytest.mark.parametrize(
    ("level", "infected"),
    [(1.0, 0.8949), (0.7, 0.6992), (0.5, 0.1019), (0.45, 0.00562), (0.4, 0.00048)],
)
def test_how_far_it_gets_until_june_at_a_constant_level(level: float, infected: float) -> None:
    course = Course(22, start=level, **CERTAIN)
    assert course.share_infected(152) == pytest.approx(infected, rel=2e-3, abs=5e-6)


def test_intensive_care_is_judged_by_beds_in_use() -> None:
    half = Course(22, start=0.5, **CERTAIN)
    assert half.critical[:152].max() == pytest.approx(942, rel=2e-3)
    assert half.total("icu") > 5000  # ever admitted
    assert not any(half.functions.terminal(state, None) for state in half.states[:-1])
    for level, day in ((1.0, 35.1), (0.7, 52.4)):
        over = Course(9, start=level, **CERTAIN).critical > 1000
        assert int(over.argmax()) + 1 == math.ceil(day)


def test_with_nobody_meeting_only_the_first_are_infected() -> None:
    course = Course(21, start=0.0, **CERTAIN)
    assert course.functions.population - course.last.susceptible == pytest.approx(200)
    assert course.total("dead") == pytest.approx(200 * 0.003, rel=1e-4)


# -- invariants --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_people_are_neither_made_nor_lost(seed: int) -> None:
    env = ExaCovid()
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    before = env.state
    for _ in range(40):  # infections leave the memory after 90 days
        env.step(int(rng.integers(7)))
        state = env.state
        everyone = state.susceptible + state.infections.sum() + state.older
        assert everyone == pytest.approx(kernel.POPULATION, rel=1e-12)
        assert (state.infections >= 0).all()
        assert (state.totals[1] >= before.totals[1] - 1e-9).all()
        symptomatic, admitted, icu, dead, ward, recovered, discharged = state.totals[1]
        assert symptomatic >= admitted >= icu + recovered - 1e-9
        assert icu >= dead + ward - 1e-9
        assert ward >= discharged - 1e-9
        before = state


def test_an_episode_with_certain_parameters_is_the_same_for_every_seed() -> None:
    drawn, fixed = ExaCovid(), ExaCovid(**CERTAIN)
    starts = [drawn.reset(seed=seed) and drawn.state for seed in range(20)]
    assert len({float(start.r0) for start in starts}) == 20
    assert all(2.07 <= start.r0 <= 2.53 for start in starts)
    same = [fixed.reset(seed=seed) and float(fixed.state.infections[-1]) for seed in range(3)]
    assert same == [200.0] * 3


def test_numpy_and_jax_agree_and_the_week_compiles_and_maps() -> None:
    import jax

    actions = np.random.default_rng(0).integers(0, 7, (12, 3))
    env = ExaCovid(dt=0.1)
    with jax.enable_x64(True):
        device = env.make(xp=jax.numpy)

        def week(state: Any, action: Any) -> Any:
            after = device.transition(state, action, None)
            return after, device.reward(state, action, after, None), device.observation(after, None)

        weeks = jax.jit(jax.vmap(week))
        keys = jax.random.split(jax.random.key(0), 3)
        mapped = jax.jit(jax.vmap(device.initial))(keys)
        lanes = [type(mapped)(*(np.asarray(a)[k] for a in mapped)) for k in range(3)]
        assert len({float(lane.r0) for lane in lanes}) == 3
        for chosen in actions:
            mapped, rewards, seen = weeks(mapped, chosen)
            for k, action in enumerate(chosen):
                after = env.functions.transition(lanes[k], action, None)
                for here, there in zip(after, mapped, strict=True):
                    np.testing.assert_allclose(here, np.asarray(there)[k], rtol=1e-9, atol=1e-6)
                expected = env.functions.reward(lanes[k], action, after, None)
                assert float(rewards[k]) == pytest.approx(float(expected), rel=1e-9)
                np.testing.assert_allclose(
                    seen[k], env.functions.observation(after, None), rtol=1e-5, atol=1e-6
                )
                lanes[k] = after


# -- what the planner sees, does and pays for ------------------------------------------------------


def test_actions_change_the_contact_level_and_it_stays_a_share() -> None:
    env = ExaCovid(**CERTAIN)
    for action, change in enumerate(CHANGES):
        env.reset(seed=0)
        assert env.step(action)[4]["mitigation"] == pytest.approx(0.5 + change)
    env.reset(seed=0)
    closed = [env.step(CHANGES.index(-0.1))[4]["mitigation"] for _ in range(8)]
    assert min(closed) == 0.0
    assert max(closed) == pytest.approx(0.4)


def test_the_planner_pays_for_closure_deaths_and_beds() -> None:
    course = Course(20, start=0.5, **CERTAIN)
    reward, state, after = course.functions.reward, course.states[-2], course.states[-1]
    beds = after.critical[-7:].mean() / 1000
    deaths = 0.003 * (state.susceptible - after.susceptible)
    assert reward(state, 0, after, None) == pytest.approx(-(0.5 + 0.002 * deaths + beds), rel=1e-9)
    quiet = Course(3, start=0.0, **CERTAIN)
    assert reward(quiet.states[-2], 0, quiet.last, None) == pytest.approx(-1.0, abs=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_a_full_intensive_care_ends_the_episode_and_never_pays(seed: int) -> None:
    env = ExaCovid(start=1.0)
    env.reset(seed=seed)
    rewards = []
    for _ in range(21):
        _, reward, terminated, _, info = env.step(0)
        rewards.append(reward)
        if terminated:
            break
    assert terminated
    assert env.state.critical[-7:].max() > 1000 > env.state.critical[:-7].max()
    assert info["critical"] == pytest.approx(env.state.critical[-1])
    assert rewards[-1] < -50
    assert sum(rewards) < -21  # worse than all closed until the end


def test_the_predecessors_reward_to_the_letter() -> None:
    env = ExaCovid(reward="exarl", start=0.5, **CERTAIN)
    env.reset(seed=0)
    ended = False
    while not ended:
        _, reward, ended, _, info = env.step(0)
        paid = -499.0 if info["icu_admitted"] > 1000 else info["icu_admitted"] / 1001
        assert reward == pytest.approx(paid)
    assert info["critical"] < 1000, "it ends although there are free beds"
    env = ExaCovid(reward="exarl", start=0.95)
    env.reset(seed=0)
    assert env.step(CHANGES.index(0.1))[1] == -99.0


def test_doing_nothing_is_not_the_best() -> None:
    env = ExaCovid()
    returns: dict[str, list[float]] = {"hold": [], "follow": []}
    for seed in range(12):
        for name, policy in (("hold", hold), ("follow", follow_growth)):
            observation, _ = env.reset(seed=seed)
            total = 0.0
            for _ in range(21):
                observation, reward, terminated, _, _ = env.step(policy(observation))
                total += reward
                if terminated:
                    break
            returns[name].append(total)
    assert np.mean(returns["follow"]) > -13.5
    assert np.mean(returns["hold"]) < -20


def test_counts_in_info_belong_together() -> None:
    env = ExaCovid()
    env.reset(seed=3)
    for _ in range(12):
        info = env.step(0)[4]
    assert info["day"] == 84
    assert info["dead_by_age"].sum() == pytest.approx(info["dead"], rel=1e-9)
    assert info["susceptible"] + info["infected"] == pytest.approx(kernel.POPULATION)
    assert 0 < info["critical"] < info["hospitalised"] < info["admitted"] < info["infected"]


def test_a_picture() -> None:
    env = ExaCovid(render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    for _ in range(9):
        env.step(0)
    image = env.render()
    assert image.shape == first.shape == (600, 640, 3)
    assert image.dtype == np.uint8
    assert (image != first).any()


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"dt": 0.3}, "dt"),
        ({"dt": 1.0, "r0": 20.0}, "dt"),
        ({"reward": "best"}, "reward"),
        ({"r0": 0.0}, "r0"),
        ({"start": 1.5}, "start"),
        ({"death_cost": -1.0}, "costs"),
    ],
)
def test_wrong_parameters_are_refused(bad: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        ExaCovid(**bad)
