"""Is an environment fit to train in? Gymnasium's checker and what EXARL relies on beyond it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check

from exarl.envs.base import can_snapshot
from exarl.envs.registration import make_env
from exarl.envs.spaces import adapt
from exarl.errors import ConfigError

STEPS = 200


@dataclass(frozen=True)
class Finding:
    """One check: its name, whether it held (None: a remark), and what was seen."""

    check: str
    passed: bool | None
    detail: str = ""


def check_environment(id: str, kwargs: Mapping[str, Any]) -> list[Finding]:
    """Every check on the environment ``id``; an environment that cannot be made raises."""
    env, limit = make_env(id, kwargs)
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("Gymnasium's checker", lambda: _gymnasium(env)),
        ("spaces", lambda: _spaces(id, env)),
        ("same seed, same episode", lambda: _deterministic(env)),
        ("observations finite and of their space", lambda: _observations(env)),
        ("episodes end", lambda: _ends(env, limit)),
        ("running episodes can be kept", lambda: _snapshots(env)),
        ("speed", lambda: _speed(env)),
    ]
    findings = []
    for name, check in checks:
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - whatever the environment raises is the finding
            found = Finding(name, False, f"{type(error).__name__}: {error}")
        findings.append(Finding(name, found.passed, " ".join(found.detail.split())))
    env.close()
    return findings


def _gymnasium(env: gymnasium.Env[Any, Any]) -> Finding:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gymnasium_check(env.unwrapped, skip_render_check=True)
    remarks = [str(w.message).replace("\x1b[33mWARN: ", "").replace("\x1b[0m", "") for w in caught]
    return Finding("", True, "; ".join(remarks))


def _spaces(id: str, env: gymnasium.Env[Any, Any]) -> Finding:
    works = []
    for kind in ("discrete", "continuous"):
        try:
            spec = adapt(
                id,
                env.observation_space,
                env.action_space,
                action_kind=kind,
                nactions=5,
                max_episode_steps=None,
            ).spec
        except ConfigError:
            continue
        actions = f"{spec.n_actions} actions" if spec.n_actions else f"actions {spec.action.shape}"
        works.append(f"{kind} agents see observations {spec.observation.shape}, {actions}")
    return Finding("", bool(works), "; ".join(works) or "no agent can use these spaces")


def _deterministic(env: gymnasium.Env[Any, Any]) -> Finding:
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(STEPS)]
    first, second = _trajectory(env, actions), _trajectory(env, actions)
    for step, (one, other) in enumerate(zip(first, second, strict=False)):
        if not np.array_equal(one, other, equal_nan=True):
            return Finding("", False, f"two runs of seed 1 differ at step {step}")
    same = len(first) == len(second)
    return Finding("", same, "" if same else "two runs of seed 1 have different lengths")


def _trajectory(env: gymnasium.Env[Any, Any], actions: list[Any]) -> list[np.ndarray]:
    space = env.observation_space
    observation, _ = env.reset(seed=1)
    seen = [_flat(space, observation)]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append(np.append(_flat(space, observation), float(reward)))
        if terminated or truncated:
            break
    return seen


def _flat(space: Any, observation: Any) -> np.ndarray:
    return np.asarray(gymnasium.spaces.flatten(space, observation), np.float64).ravel()


def _observations(env: gymnasium.Env[Any, Any]) -> Finding:
    space = env.observation_space
    observation, _ = env.reset(seed=2)
    for step in range(STEPS):
        if not space.contains(observation):
            return Finding("", False, f"step {step}: {observation!r} is not in {space}")
        if not np.isfinite(_flat(space, observation)).all():
            return Finding("", False, f"step {step}: not finite")
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        if not np.isfinite(float(reward)):
            return Finding("", False, f"step {step}: reward {reward}")
        if terminated or truncated:
            observation, _ = env.reset()
    return Finding("", True, f"{STEPS} random steps")


def _ends(env: gymnasium.Env[Any, Any], limit: int | None) -> Finding:
    if limit is not None:
        return Finding("", True, f"cut after {limit} steps")
    env.reset(seed=3)
    for step in range(10 * STEPS):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            return Finding("", True, f"after {step + 1} random steps")
    return Finding("", None, f"not within {10 * STEPS} random steps; consider --n_steps")


def _snapshots(env: gymnasium.Env[Any, Any]) -> Finding:
    if not can_snapshot(env):
        return Finding(
            "", None, "no get_state/set_state: a resumed run plays episodes again from their seed"
        )
    env.reset(seed=4)
    action = env.action_space.sample()
    env.step(action)
    state = env.unwrapped.get_state()  # type: ignore[attr-defined]
    expected = env.step(action)[:2]
    env.reset(seed=5)
    env.unwrapped.set_state(state)  # type: ignore[attr-defined]
    got = env.step(action)[:2]
    space = env.observation_space
    same = np.array_equal(_flat(space, expected[0]), _flat(space, got[0])) and (
        expected[1] == got[1]
    )
    return Finding("", same, "" if same else "set_state(get_state()) does not continue the episode")


def _speed(env: gymnasium.Env[Any, Any]) -> Finding:
    env.reset(seed=6)
    started, steps = time.perf_counter(), 0
    while steps < STEPS and time.perf_counter() - started < 2:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps += 1
        if terminated or truncated:
            env.reset()
    each = (time.perf_counter() - started) / steps
    return Finding("", None, f"{each * 1e6:,.0f} us a step, resets included")
