"""The Booster environments: the twin's statistics, and an episode's rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.booster import regulated_run

from exarl.envs.registration import make_env
from exarl.science.booster import kernel
from exarl.science.booster.env import BoosterEnv, ExaBooster, ExaBoosterDiscrete, hold, regulate
from exarl.types import EnvSpec

SECOND, MINUTE = 15, 895  # cycles


def moving_mean(x: np.ndarray, width: int) -> np.ndarray:
    sums = np.cumsum(np.concatenate([np.zeros_like(x[..., :1]), x], -1), -1)
    means: np.ndarray = (sums[..., width:] - sums[..., :-width]) / width
    return means


def noise(x: np.ndarray) -> float:
    """Deviation from the centred mean over a second, as the published table has it."""
    return float((x[..., 7:-7] - moving_mean(x, SECOND)).std())


def drift(x: np.ndarray) -> float:
    """Of the means over a minute, as the published table has it."""
    return float(moving_mean(x, MINUTE)[..., ::MINUTE].std())


def median_step(x: np.ndarray) -> float:
    return float(np.median(np.abs(np.diff(x))))


# -- the synthetic twin ----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[0, 1])
def run(request: pytest.FixtureRequest) -> np.ndarray:
    """Three hundred twins for two minutes each, after they have settled."""
    return regulated_run(np.random.default_rng(request.param), 300, 2 * MINUTE + 100)[..., 100:]


def test_the_twin_under_the_regulator_has_the_published_statistics(run: np.ndarray) -> None:
    vimin, iminer, line, injector, ahead, setting = run
    assert noise(iminer) == pytest.approx(0.224584, rel=0.1)
    assert drift(iminer) == pytest.approx(0.040556, rel=0.15)
    assert median_step(iminer) == pytest.approx(0.08, rel=0.1)
    low, high = np.quantile(iminer, [0.25, 0.75])
    assert 4 * (high - low) == pytest.approx(1.04, rel=0.1)  # the whiskers' range
    assert abs(iminer.mean()) < 0.01
    assert drift(vimin) == pytest.approx(0.018493, rel=0.15)
    assert median_step(vimin) == pytest.approx(0.0078125, rel=0.1)
    assert noise(vimin) == pytest.approx(0.026792, rel=0.25)  # the recording's gain varied
    assert vimin.mean() == pytest.approx(103.41547, abs=0.005)
    assert noise(line) == pytest.approx(0.128871, rel=0.1)
    assert median_step(line) == pytest.approx(0.0591, rel=0.1)
    assert line.std() == pytest.approx(15.90266, rel=0.15)
    assert noise(injector) == pytest.approx(1575.21, rel=0.1)
    assert median_step(injector) == pytest.approx(897.5, rel=0.1)
    assert injector.mean() == pytest.approx(3294, rel=0.02)
    assert 337 <= injector.min() < injector.max() <= 7066
    assert drift(setting) == pytest.approx(0.017753, rel=0.15)
    np.testing.assert_allclose(ahead[:, :-1], injector[:, 1:], atol=100)  # MDAT leads by a cycle


def test_moves_to_choose_from_are_those_of_the_regulator(run: np.ndarray) -> None:
    sizes = np.abs(np.diff(run[0]))
    expected = np.quantile(sizes, 2 * np.arange(16) / 31)
    np.testing.assert_allclose(kernel.MOVES, expected, rtol=0.06, atol=0.0006)


def test_the_regulator_by_its_equations(run: np.ndarray) -> None:
    vimin, iminer, _, _, _, setting = run
    integral = setting - kernel.ALPHA * iminer - vimin
    np.testing.assert_allclose(np.diff(integral), kernel.GAMMA * iminer[:, 1:], atol=1e-12)
    np.testing.assert_allclose(iminer / kernel.QUANTUM, np.round(iminer / kernel.QUANTUM))


@pytest.mark.parametrize("line", [-40.0, 25.0])
def test_the_integral_drives_a_lasting_error_to_zero(line: float) -> None:
    left = {}
    for gamma in (0.0, kernel.GAMMA):
        deviation, integral = 0.0, 0.0
        for _ in range(12_000):
            integral += gamma * 10 * deviation
            vimin = kernel.regulated(103.4, 10 * deviation, integral)
            deviation = kernel.respond(deviation, vimin - 103.4, kernel.PER_LINE * line)
        left[gamma] = deviation
    slope = 1 - kernel.PERSISTENCE + kernel.GAIN  # of a proportional regulator alone
    assert left[0.0] == pytest.approx(kernel.PER_LINE * line / slope)
    assert abs(left[kernel.GAMMA]) < 0.01 * abs(left[0.0])


def played(env: BoosterEnv, law: Callable[[Any], float], seed: int) -> tuple[float, float]:
    """The return of a law of regulation, and the regulator's in the same disturbances."""
    _, info = env.reset(seed=seed)
    total = reference = 0.0
    for _ in range(100):
        _, reward, terminated, _, info = env.step(env.action_for(law(info)))
        total += reward
        reference -= abs(info["regulator_iminer"])
        if terminated:
            break
    return total, reference


def test_the_regulator_is_better_than_doing_nothing_and_can_be_beaten() -> None:
    env = ExaBooster()

    def informed(info: Any) -> float:
        """Half of the deviation and all of the ramp that MDAT tells of are answered."""
        ahead = env.state.window[4, -1] - kernel.INJECTOR
        wanted = 0.5 * kernel.PERSISTENCE * info["iminer"] / 10 + kernel.PER_INJECTOR * ahead
        return float(info["setting"] - info["integral"] - wanted / kernel.GAIN - info["vimin"])

    laws = {"hold": hold, "regulate": regulate, "informed": informed}
    returns = {n: np.array([played(env, f, seed) for seed in range(25)]) for n, f in laws.items()}
    costs = {name: -pairs[:, 0].mean() for name, pairs in returns.items()}
    assert costs["hold"] > 1.8 * costs["regulate"]
    assert costs["regulate"] > 1.2 * costs["informed"]
    reached, reference = returns["regulate"].T
    assert reached == pytest.approx(reference, rel=0.15, abs=1)  # moves are limited, else the same


# -- episodes ----------------------------------------------------------------------------------------


def test_rewards_and_information() -> None:
    env = ExaBoosterDiscrete()
    _, info = env.reset(seed=0)
    assert info["data"] == info["plant"] == "synthetic"
    for action in (15, 20, 8):
        before = info["vimin"]
        observation, reward, terminated, _, info = env.step(action)
        assert reward == -abs(info["iminer"])
        assert not terminated
        moved = env.functions.increments[action]
        assert info["vimin"] == pytest.approx(before + moved)
        assert observation[1] == pytest.approx(info["iminer"] / 0.5, abs=1e-6)
    assert env.functions.increments[15] == 0.0
    np.testing.assert_allclose(env.functions.increments, -env.functions.increments[::-1])


@pytest.mark.parametrize("push", [0.06, -0.06])
@pytest.mark.parametrize("seed", range(3))
def test_leaving_the_bounds_ends_an_episode_and_is_charged_to_its_end(
    push: float, seed: int
) -> None:
    env = ExaBooster()
    env.reset(seed=seed)
    terminated, steps = False, 0
    while not terminated and steps < 20:
        _, reward, terminated, truncated, info = env.step(np.array([push], np.float32))
        steps += 1
    outside = not 103.1 <= info["vimin"] <= 103.6 or abs(info["iminer"]) >= 2
    assert terminated
    assert outside
    assert not truncated
    assert reward == pytest.approx(-abs(info["iminer"]) - 5 * (100 - steps))


def test_episodes_are_cut_after_a_hundred_steps_and_begin_anywhere() -> None:
    assert make_env("ExaBoosterDiscrete-v0", {})[1] == 100
    assert make_env("ExaBooster-v0", {})[1] == 100
    env = ExaBoosterDiscrete()
    starts = np.stack([env.reset(seed=seed)[0] for seed in range(30)])
    assert (starts.std(0) > 0.05).all()
    assert np.abs(starts).max() < 10


def test_a_longer_history_is_seen() -> None:
    env = ExaBoosterDiscrete(history=6)
    first, _ = env.reset(seed=1)
    assert first.shape == env.observation_space.shape == (5, 6)
    second = env.step(15)[0]
    np.testing.assert_array_equal(second[1:, :-1], first[1:, 1:])


def test_numpy_and_jax_agree_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    for name, value in (("normal", 0.3), ("uniform", 0.9)):

        def same(rng: Any, shape: Any = (), *_: Any, value: float = value) -> np.ndarray:
            return np.full(shape, value)

        monkeypatch.setattr(kernel, name, same)
    env = ExaBoosterDiscrete(history=2)
    env.reset(seed=0)
    with jax.enable_x64(True):
        device = env.make(xp=jax.numpy)

        def cycle(state: Any, action: Any, key: Any) -> Any:
            after = device.transition(state, action, key)
            return after, device.reward(state, action, after, key), device.observation(after, key)

        cycles = jax.jit(jax.vmap(cycle))
        keys = jax.random.split(jax.random.key(0), 2)
        start = env.functions.initial(np.random.default_rng(0))
        for here, there in zip(start, jax.jit(device.initial)(keys[0]), strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-12)
        mapped = type(start)(*(np.stack([a, a]) for a in start))
        lanes = [start, start]
        for actions in np.random.default_rng(0).integers(8, 23, (25, 2)):
            mapped, rewards, seen = cycles(mapped, actions, keys)
            for k, action in enumerate(actions):
                after = env.functions.transition(lanes[k], action, np.random.default_rng(0))
                for here, there in zip(after, mapped, strict=True):
                    np.testing.assert_allclose(here, np.asarray(there)[k], rtol=1e-9, atol=1e-12)
                expected = env.functions.reward(lanes[k], action, after, None)
                assert float(rewards[k]) == pytest.approx(float(expected))
                np.testing.assert_allclose(seen[k], env.functions.observation(after, None), 1e-6)
                lanes[k] = after


def test_a_picture() -> None:
    env = ExaBooster(render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    env.step(np.array([0.05], np.float32))
    assert first.shape == (600, 640, 3)
    assert first.dtype == np.uint8
    assert (env.render() != first).any()


# -- the run's manifest ------------------------------------------------------------------------------


def test_a_run_says_what_its_data_were(tmp_path: Path) -> None:
    import exarl

    result = exarl.train(
        agent="Random-v0",
        env="ExaBoosterDiscrete-v0",
        total_steps=32,
        run_dir=str(tmp_path / "run"),
        progress=False,
    )
    assert result is not None
    manifest = json.loads((result.run_dir / "manifest.json").read_text())
    assert manifest["environment"] == {
        "id": "ExaBoosterDiscrete-v0",
        "data": "synthetic",
        "plant": "synthetic",
    }


def test_what_an_environment_says_of_itself_reaches_a_learner_elsewhere() -> None:
    from exarl.run.build import build_episode
    from exarl.run.configure import configure

    wanted = configure(overrides={"agent": "Random-v0", "env": "ExaBooster-v0"})
    spec = build_episode(wanted)[1].spec
    assert EnvSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.about == {"data": "synthetic", "plant": "synthetic"}
    other = configure(overrides={"agent": "Random-v0", "env": "CartPole-v1"})
    assert build_episode(other)[1].spec.about == {}
