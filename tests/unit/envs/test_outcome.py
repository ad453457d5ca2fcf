"""What is not Gymnasium's is answered with what to change; rewards that are one number are taken."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from exarl.envs.check import Finding, check_environment, findings
from exarl.envs.episode import Episode, check_finite
from exarl.envs.guard import check_numbers
from exarl.envs.isolation import isolate
from exarl.envs.outcome import ContractError, as_number, begin
from exarl.envs.registration import make_env
from exarl.envs.spaces import adapt
from exarl.errors import ConfigError, EnvironmentFailure


class Sound(gymnasium.Env[Any, Any]):
    """Two numbers that stay as they are."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)
    reward: Any = 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), self.reward, False, False, {}


class OldReset(Sound):
    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(2, np.float32)


class NoInfo(Sound):
    """Its observation of two numbers could be mistaken for observation and info."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32)


class OldStep(Sound):
    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, False, {}


class Vector(Sound):
    reward = np.ones(3)


class Single(Sound):
    reward = np.ones(1, np.float32)


class Raising(Sound):
    """Cannot be closed."""

    def close(self) -> None:
        raise RuntimeError("the licence server is gone")


BROKEN = {
    OldReset: "reset takes no seed, as in Gym before 0.26: write 'def reset(self, *, seed=None",
    NoInfo: "reset returned an observation without info, as in Gym before 0.26",
    OldStep: "step returned 4 values, as in Gym before 0.26: return observation, reward, terminated",
    Vector: "returned a reward of shape (3,), but a reward is one number",
}
KINDS = (Sound, Single, Raising, *BROKEN)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for kind in KINDS:
        gymnasium.register(f"{kind.__name__}-v0", entry_point=f"{__name__}:{kind.__name__}")
    yield
    for kind in KINDS:
        del gymnasium.registry[f"{kind.__name__}-v0"]


def play(env: gymnasium.Env[Any, Any]) -> tuple[Any, float, bool, bool]:
    adapter = adapt(
        "Toy-v0",
        env.observation_space,
        env.action_space,
        action_kind="any",
        nactions=2,
        max_episode_steps=None,
    )
    episode = Episode(env, adapter, None, 0, 3)
    try:
        episode.begin()
        return episode.step(0)
    finally:
        episode.close()


@pytest.mark.parametrize("kind", BROKEN)
def test_an_old_or_wrong_environment_is_told_what_to_change(kind: type) -> None:
    with pytest.raises(EnvironmentFailure) as failed:
        play(make_env(f"{kind.__name__}-v0", {})[0])
    assert str(failed.value).startswith("environment 3: ")
    assert BROKEN[kind] in str(failed.value)
    assert failed.value.kind == "shape"


def test_in_a_process_of_its_own_as_well() -> None:
    with pytest.raises(EnvironmentFailure) as failed:
        play(isolate("OldStep-v0", {})[0])
    assert BROKEN[OldStep] in str(failed.value)


def test_what_an_environment_raises_itself_stays_as_it_is() -> None:
    class Own(Sound):
        def reset(self, **_: Any) -> Any:
            raise TypeError("of its own")

    with pytest.raises(TypeError, match="of its own"):
        begin(Own(), 1)


@pytest.mark.parametrize(
    "reward",
    [2, 2.0, np.float32(2), np.array(2.0), np.array([2.0]), np.array([[2]]), [2.0], True * 2],
)
def test_a_reward_that_is_one_number_is_taken(reward: Any) -> None:
    assert as_number(reward) == 2.0


@pytest.mark.parametrize("reward", [np.ones(2), [], None, "much", {}, [1.0, 2.0]])
def test_any_other_is_not(reward: Any) -> None:
    with pytest.raises(ContractError, match="a reward is one number"):
        as_number(reward)


def test_a_reward_of_shape_1_plays() -> None:
    assert play(make_env("Single-v0", {})[0])[1] == 1.0


# -- which numbers are not finite --------------------------------------------------------------------


def test_a_block_names_which_numbers_are_not_finite() -> None:
    seen, paid = np.zeros((4, 2, 5), np.float32), np.zeros((4, 2), np.float32)
    check_finite([7, 8], seen, paid)
    seen[2, 1, [1, 4]] = np.nan, np.inf
    with pytest.raises(
        EnvironmentFailure, match=r"environment 8 .*2 of 5 numbers .*\(number 1, 4\)"
    ):
        check_finite([7, 8], seen, paid)
    paid[1, 0] = -np.inf
    with pytest.raises(EnvironmentFailure, match="environment 7 returned the reward -inf"):
        check_finite([7, 8], seen, paid)


def test_a_guarded_environment_names_them_too() -> None:
    picture = np.zeros((3, 4))
    picture[1, 2] = np.nan
    with pytest.raises(EnvironmentFailure, match=r"1 of 12 numbers .*\(number \(1, 2\)\)"):
        check_numbers(0, "step", picture)
    with pytest.raises(EnvironmentFailure, match=r"9 of 9 .*\(number 0, 1, 2, 3, 4, \.\.\.\)"):
        check_numbers(0, "step", np.full(9, np.nan))


# -- actions that no agent can take ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["discrete", "continuous", "any"])
@pytest.mark.parametrize(
    "space", [spaces.Dict(a=spaces.Text(2)), spaces.Sequence(spaces.Discrete(2))]
)
def test_a_refusal_of_actions_says_what_is_supported(kind: str, space: spaces.Space[Any]) -> None:
    with pytest.raises(
        ConfigError, match="supported are Discrete, MultiDiscrete, MultiBinary and Box"
    ):
        adapt(
            "Toy-v0",
            Sound.observation_space,
            space,
            action_kind=kind,
            nactions=2,
            max_episode_steps=None,
        )


# -- check-env ---------------------------------------------------------------------------------------


def found(kind: type, **options: Any) -> dict[str, Finding]:
    return {f.check: f for f in check_environment(f"{kind.__name__}-v0", {}, **options)}


def test_a_close_that_raises_hides_no_finding() -> None:
    seen = found(Raising, steps=5)
    assert seen["can be closed"].passed is False
    assert "the licence server is gone" in seen["can be closed"].detail
    assert [name for name, finding in seen.items() if finding.passed is False] == ["can be closed"]


def test_the_check_says_what_an_old_environment_should_change() -> None:
    assert BROKEN[OldStep] in found(OldStep, steps=5)["same seed, same episode"].detail


def test_steps_limits_the_steps() -> None:
    assert (
        found(Sound, steps=7)["observations finite and of their space"].detail == "7 random steps"
    )


def test_a_slow_environment_gets_fewer_steps_and_tells_of_each() -> None:
    """Findings come as they are made, and between them word of what is under way."""
    id, heard = f"Slow{uuid.uuid4().hex}-v0", []

    class Slow(Sound):
        def step(self, action: Any) -> Any:
            time.sleep(0.01)
            return super().step(action)

    gymnasium.register(id, entry_point=Slow)
    try:
        order: list[str] = []
        for finding in findings(id, {}, seconds=1.0, tell=lambda *said: heard.append(said)):
            order.append(finding.check)
            assert heard[-1][0] in (finding.check, "its speed")
    finally:
        del gymnasium.registry[id]
    assert order[0] == "Gymnasium's checker"
    assert 10 < heard[-1][1] < 150
    assert heard[-1][2] < 2.0
    assert {said[0] for said in heard} > {"same seed, same episode", "speed"}
