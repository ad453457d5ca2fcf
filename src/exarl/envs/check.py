"""Is an environment fit to train in? Gymnasium's checker and what EXARL relies on beyond it."""

from __future__ import annotations

import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check

from exarl.envs.base import can_snapshot
from exarl.envs.isolation import Limits, isolate
from exarl.envs.registration import asks_for, make_env
from exarl.envs.spaces import adapt
from exarl.errors import ConfigError, EnvironmentFailure

STEPS = 200
_ISOLATED_STEPS = 50

HINTS = {
    "Gymnasium's checker": "correct what the message names; what follows may have the same cause",
    "same seed, same episode": (
        "call super().reset(seed=seed) first in reset, draw every random number from"
        " self.np_random, and let neither the clock nor anything of an earlier episode count"
    ),
    "observations finite and of their space": (
        "what raises or is not finite ends a run, or costs a restart with env_failure restart; end the"
        " episode (terminated) where the simulation diverges"
    ),
    "episodes end": "register it with max_episode_steps=N, or train with --n_steps N",
    "running episodes can be kept": (
        "have get_state return all that changes in an episode, the place in self.np_random included"
    ),
    "works in a process of its own": "see the message; env_isolation process is not for it as it is",
}
"""What to do where a check fails that says nothing better itself."""


@dataclass(frozen=True)
class Finding:
    """One check: its name, whether it held (None: a remark), what was seen, and what to do."""

    check: str
    passed: bool | None
    detail: str = ""
    hint: str = ""


def check_environment(id: str, kwargs: Mapping[str, Any]) -> list[Finding]:
    """Every check on the environment ``id``; an environment that cannot be made raises."""
    before = set(os.listdir())  # noqa: PTH208
    env, limit = make_env(id, kwargs)
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("Gymnasium's checker", lambda: _gymnasium(env)),
        ("spaces", lambda: _spaces(id, env)),
        ("same seed, same episode", lambda: _deterministic(env)),
        ("observations finite and of their space", lambda: _observations(env)),
        ("episodes end", lambda: _ends(env, limit)),
        ("running episodes can be kept", lambda: _snapshots(env)),
        ("two in one process", lambda: _two(id, kwargs, env)),
        ("works in a process of its own", lambda: _isolated(id, kwargs, env)),
        ("files of its own", lambda: _identity(id, before)),
        ("speed", lambda: _speed(env)),
    ]
    findings = []
    for name, check in checks:
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - whatever the environment raises is the finding
            found = Finding(name, False, f"{type(error).__name__}: {error}")
        hint = found.hint or (HINTS.get(name, "") if found.passed is False else "")
        detail = " ".join(found.detail.split())
        findings.append(replace(found, check=name, detail=detail, hint=hint))
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
    refused = ""
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
        except ConfigError as error:
            refused = str(error)
            continue
        actions = f"{spec.n_actions} actions" if spec.n_actions else f"actions {spec.action.shape}"
        works.append(f"{kind} agents see observations {spec.observation.shape}, {actions}")
    if works:
        return Finding("", True, "; ".join(works))
    return Finding(
        "",
        False,
        f"no agent can use these spaces: {refused}",
        "actions are a Discrete, MultiDiscrete, MultiBinary or Box; observations one of these, or a"
        " Dict or Tuple of them",
    )


def _deterministic(env: gymnasium.Env[Any, Any]) -> Finding:
    actions = _actions(env)
    first, second = _trajectory(env, actions), _trajectory(env, actions)
    where = _difference(first, second)
    return Finding("", where is None, "" if where is None else f"two runs of seed 1 {where}")


def _observations(env: gymnasium.Env[Any, Any]) -> Finding:
    space = env.observation_space
    observation, _ = env.reset(seed=2)
    for step in range(STEPS):
        if not space.contains(observation):
            return _outside(space, observation, step)
        if not np.isfinite(_flat(space, observation)).all():
            return Finding("", False, f"step {step}: not finite")
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        if not np.isfinite(float(reward)):
            return Finding("", False, f"step {step}: reward {reward}")
        if terminated or truncated:
            observation, _ = env.reset()
    return Finding("", True, f"{STEPS} random steps")


def _outside(space: gymnasium.Space[Any], observation: Any, step: int) -> Finding:
    """What is wrong with an observation, and what would be right."""
    seen = f"step {step}: {observation!r} is not in {space}"
    if not isinstance(space, gymnasium.spaces.Box):
        return Finding("", False, seen, "return what observation_space says, part by part")
    array = np.asarray(observation)
    if array.shape != space.shape:
        hint = (
            f"its shape is {array.shape}, observation_space says {space.shape}: change one of them"
        )
    elif array.dtype.kind == "f" and np.isnan(array).any():
        hint = HINTS["observations finite and of their space"]
    elif not isinstance(observation, np.ndarray) or not np.can_cast(array.dtype, space.dtype):
        hint = f"return np.asarray(observation, np.{np.dtype(space.dtype).name})"
    else:
        over = np.flatnonzero(np.ravel((array < space.low) | (array > space.high)))
        hint = (
            f"numbers {over[:5].tolist()} are beyond the bounds: widen observation_space, or clip"
        )
    return Finding("", False, seen, hint)


def _ends(env: gymnasium.Env[Any, Any], limit: int | None) -> Finding:
    if limit is not None:
        return Finding("", True, f"cut after {limit} steps")
    env.reset(seed=3)
    for step in range(10 * STEPS):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            return Finding("", True, f"after {step + 1} random steps")
    return Finding("", None, f"not within {10 * STEPS} random steps", HINTS["episodes end"])


def _snapshots(env: gymnasium.Env[Any, Any]) -> Finding:
    if not can_snapshot(env):
        return Finding(
            "",
            None,
            "no get_state/set_state: a resumed run plays episodes again from their seed",
            "where steps are slow, add both: named arrays of all that changes in an episode",
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


def _two(id: str, kwargs: Mapping[str, Any], env: gymnasium.Env[Any, Any]) -> Finding:
    """Whether a second one disturbs the first, as with envs_per_actor > 1 or after a restart."""
    actions = _actions(env)[:_ISOLATED_STEPS]
    alone = _trajectory(env, actions)
    if _difference(alone, _trajectory(env, actions)) is not None:
        return Finding("", None, "cannot be told: its episodes cannot be repeated")
    other, _ = make_env(id, kwargs)
    beside = _trajectory(env, actions, beside=other)
    other.close()
    where = _difference(alone, beside)
    if where is None:
        return Finding("", True, "a second one beside it changes nothing")
    return Finding(
        "",
        None,
        f"runs of seed 1 alone and with a second one beside it {where}",
        "they share something (a module's variables, a library's state, files): train with"
        " --env_isolation process, or with envs_per_actor 1",
    )


def _isolated(id: str, kwargs: Mapping[str, Any], env: gymnasium.Env[Any, Any]) -> Finding:
    actions = _actions(env)[:_ISOLATED_STEPS]
    inline, seconds = _timed(lambda: _trajectory(env, actions))
    repeatable = _difference(inline, _trajectory(env, actions)) is None
    limit = 30 + 10 * seconds
    with tempfile.TemporaryDirectory(prefix="exarl-check-") as folder:
        output = Path(folder, "output")
        try:
            other, _ = isolate(id, kwargs, output=output, limits=Limits(limit, limit))
        except ConfigError as error:
            return Finding("", None, str(error), "only env_isolation process needs it")
        except EnvironmentFailure as error:
            return Finding("", False, f"{error}: {_beginning(output)}")
        try:
            seen = _trajectory(other, actions)
            more = np.median(_paces(other, 5 * _ISOLATED_STEPS)[0])
        finally:
            other.close()
        written = _beginning(output)
    where = _difference(inline, seen, as_float32=True) if repeatable else None
    if where is not None:
        return Finding("", False, f"runs of seed 1 in this process and in one of its own {where}")
    more -= np.median(_paces(env, 5 * _ISOLATED_STEPS)[0])
    detail = f"the same episode; a step takes {max(0.0, more) * 1e6:,.0f} us more there"
    if not written:
        return Finding("", True, detail)
    return Finding(
        "",
        True,
        f"{detail}; it writes to stdout or stderr: {written}",
        "isolated, this goes to logs/env_NNNN.out of the run; otherwise into your terminal",
    )


def _identity(id: str, before: set[str]) -> Finding:
    left = sorted(set(os.listdir()) - before)  # noqa: PTH208
    if left:
        return Finding(
            "",
            False,
            f"it left {', '.join(left[:3])} in the present folder",
            "all environments of a run would write there: ask for 'context' in the constructor and use"
            " context.work_dir",
        )
    if asks_for(id, "context"):
        return Finding("", True, "it asks for its context: number, seed, folder, port, devices")
    return Finding(
        "",
        None,
        "it does not ask for its context",
        "if it writes files or opens ports, have its constructor take 'context' and use"
        " context.work_dir and context.port",
    )


def _speed(env: gymnasium.Env[Any, Any]) -> Finding:
    steps, resets = _paces(env, STEPS)
    return Finding(
        "",
        None,
        f"{np.mean(steps) * 1e6:,.0f} us a step (the slowest {max(steps) * 1e3:,.2f} ms),"
        f" {np.mean(resets) * 1e3:,.2f} ms a reset",
        f"with --env_isolation process, --step_timeout {_generous(max(steps)):g} and --reset_timeout"
        f" {_generous(max(resets)):g} would leave it ample time",
    )


def _paces(env: gymnasium.Env[Any, Any], count: int) -> tuple[list[float], list[float]]:
    """Seconds of ``count`` steps, or as many as are made in two seconds, and of their resets."""
    steps: list[float] = []
    resets = [_timed(lambda: env.reset(seed=6))[1]]
    started = time.perf_counter()
    while len(steps) < count and (not steps or time.perf_counter() - started < 2):
        action = env.action_space.sample()
        outcome, seconds = _timed(partial(env.step, action))
        steps.append(seconds)
        if outcome[2] or outcome[3]:
            resets.append(_timed(env.reset)[1])
    return steps, resets


def _generous(seconds: float) -> float:
    """A limit well above what was seen, in round numbers."""
    wanted = max(5.0, 20 * seconds)
    scale = 10 ** math.floor(math.log10(wanted))
    return float(math.ceil(wanted / scale) * scale)


def _actions(env: gymnasium.Env[Any, Any]) -> list[Any]:
    env.action_space.seed(0)
    return [env.action_space.sample() for _ in range(STEPS)]


def _trajectory(
    env: gymnasium.Env[Any, Any], actions: list[Any], beside: gymnasium.Env[Any, Any] | None = None
) -> list[np.ndarray]:
    """An episode of seed 1; another environment ``beside`` it takes every second turn."""
    space = env.observation_space
    observation, _ = env.reset(seed=1)
    seen = [_flat(space, observation)]
    if beside is not None:
        beside.reset(seed=7)
    going = beside is not None
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append(np.append(_flat(space, observation), float(reward)))
        if terminated or truncated:
            break
        if going and beside is not None:
            going = not any(beside.step(action)[2:4])
    return seen


def _difference(
    one: list[np.ndarray], other: list[np.ndarray], as_float32: bool = False
) -> str | None:
    """Where two trajectories part, in words; None when they do not."""
    kind = np.float32 if as_float32 else np.float64
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if not np.array_equal(a.astype(kind), b.astype(kind), equal_nan=True):
            return f"differ at step {step}"
    return None if len(one) == len(other) else "have different lengths"


def _flat(space: Any, observation: Any) -> np.ndarray:
    return np.asarray(gymnasium.spaces.flatten(space, observation), np.float64).ravel()


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    return call(), time.perf_counter() - started


def _beginning(output: Path) -> str:
    """The first line that was written, if any."""
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f"'{lines[0][:80]}'" if lines else ""
