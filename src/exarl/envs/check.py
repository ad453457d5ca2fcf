"""Is an environment fit to train in? Gymnasium's checker and what EXARL relies on beyond it."""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check

from exarl.envs.base import Env, Space, can_snapshot, described
from exarl.envs.external.env import Timeouts
from exarl.envs.guard import close_quietly
from exarl.envs.isolation import isolate
from exarl.envs.joint import members_of
from exarl.envs.measured import Measured, measure
from exarl.envs.outcome import ContractError, not_finite
from exarl.envs.registration import asks_for, make_env
from exarl.envs.spaces import adapt
from exarl.envs.structured import JoinedActions
from exarl.envs.watched import Watched, actions, difference, flat, paces, trajectory
from exarl.errors import ConfigError, EnvironmentFailure

STEPS, SECONDS = 200, 60.0
"""The most steps a check makes, and about how long all checks together may take."""

_ISOLATED_STEPS = 50
_PASSES = 30  # all checks together make about this many times ``count`` steps

Watch = Callable[[Env], Watched]

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
    measured: Measured | None = None


def check_environment(id: str, kwargs: Mapping[str, object], **options: Any) -> list[Finding]:
    """All that ``findings`` finds."""
    return list(findings(id, kwargs, **options))


def findings(
    id: str,
    kwargs: Mapping[str, object],
    *,
    steps: int = STEPS,
    seconds: float = SECONDS,
    tell: Callable[[str, int, float], None] = lambda *_: None,
) -> Iterator[Finding]:
    """Check the environment ``id``, finding by finding; one that cannot be made raises.

    A check makes up to ``steps`` steps, and fewer where they are so slow that all checks together
    would take longer than about ``seconds``. ``tell`` is called with the name of the
    current check, the steps made so far and the seconds they took.
    """
    before = set(os.listdir())  # noqa: PTH208
    bare, limit = make_env(id, kwargs)
    under_way = "its speed"
    watch = partial(Watched, tell=lambda *made: tell(under_way, *made))
    env = watch(bare)
    count = _affordable(env, steps, seconds)
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("Gymnasium's checker", lambda: _gymnasium(env)),
        ("spaces", lambda: _spaces(id, env)),
        ("same seed, same episode", lambda: _deterministic(env, count)),
        ("observations finite and of their space", lambda: _observations(env, count)),
        ("episodes end", lambda: _ends(env, limit, 10 * count)),
        ("running episodes can be kept", lambda: _snapshots(env)),
        ("two in one process", lambda: _two(id, kwargs, env, watch, count)),
        ("works in a process of its own", lambda: _isolated(id, kwargs, env, watch, count)),
        ("files of its own", lambda: _identity(id, before)),
        ("speed", lambda: _speed(env, count)),
        ("can be closed", lambda: _closed(bare)),
    ]
    for name, check in checks:
        under_way = name
        tell(name, env.steps, env.spent)
        try:
            found = check()
        except ContractError as error:
            found = Finding(name, False, str(error), "see https://gymnasium.farama.org/api/env")
        except Exception as error:  # noqa: BLE001 - whatever the environment raises is the finding
            found = Finding(name, False, f"{type(error).__name__}: {error}")
        hint = found.hint or (HINTS.get(name, "") if found.passed is False else "")
        detail = " ".join(found.detail.split())
        yield replace(found, check=name, detail=detail, hint=hint)


def _affordable(env: Watched, steps: int, seconds: float) -> int:
    """How many of ``steps`` a check may make so that all of them take about ``seconds``."""
    try:
        env.reset(seed=0)
        while env.steps < min(3, steps) and env.spent < seconds / 10:
            if any(env.step(env.action_space.sample())[2:4]):
                env.reset()
    except Exception:  # noqa: BLE001 - the checks will find it too, and say what it is
        return steps
    each = env.spent / (1 + env.steps)
    return max(2, min(steps, int(seconds / (_PASSES * max(each, 1e-9)))))


def _closed(env: Env) -> Finding:
    env.close()
    return Finding("", True)


def _gymnasium(env: Env) -> Finding:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Whether it can be closed is asked last, when everything else is known.
        gymnasium_check(env.unwrapped, skip_render_check=True, skip_close_check=True)
    remarks = [str(w.message).replace("\x1b[33mWARN: ", "").replace("\x1b[0m", "") for w in caught]
    return Finding("", True, "; ".join(remarks))


def _spaces(id: str, env: Env) -> Finding:
    works: list[str] = []
    refused = ""
    one = members_of(env)[0]
    for kind in ("discrete", "continuous", "any"):
        if kind == "any" and works:
            break
        try:
            spec = adapt(
                id,
                one.observation_space,
                one.action_space,
                action_kind=kind,
                nactions=5,
                max_episode_steps=None,
                factors=True,
                masks=True,
                mixed=kind == "any",
            ).spec
        except ConfigError as error:
            refused = str(error)
            continue
        actions = f"{spec.n_actions} actions" if spec.n_actions else f"actions {spec.action.shape}"
        who = "PPO, A2C and A3C" if spec.mixed else f"{kind} agents"
        actions += ", of which a mask allows some" if spec.mask else ""
        works.append(f"{who} see observations {spec.observation.shape}, {actions}")
    works += [f"{name}: {text}" for name, text in described(env).items() if works]
    if works:
        return Finding("", True, "; ".join(works))
    return Finding(
        "",
        False,
        f"no agent can use these spaces: {refused}",
        "actions and observations are a Discrete, MultiDiscrete, MultiBinary or Box, or a Dict or Tuple"
        " of them",
    )


def _deterministic(env: Watched, count: int) -> Finding:
    chosen = actions(env, count)
    first, second = trajectory(env, chosen), trajectory(env, chosen)
    where = difference(first, second)
    return Finding("", where is None, "" if where is None else f"two runs of seed 1 {where}")


def _observations(env: Watched, count: int) -> Finding:
    space = env.observation_space
    observation, _ = env.reset(seed=2)
    for step in range(count):
        array = np.asarray(observation) if isinstance(space, spaces.Box) else np.zeros(0)
        if array.dtype.kind == "f" and not (good := np.isfinite(array)).all():
            return Finding("", False, f"step {step}: {not_finite(array, ~good)}")
        if not space.contains(observation):
            return _outside(space, observation, step)
        if not np.isfinite(flat(space, observation)).all():
            return Finding("", False, f"step {step}: not finite")
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        if not np.isfinite(reward):
            return Finding("", False, f"step {step}: reward {reward}")
        if terminated or truncated:
            observation, _ = env.reset()
    return Finding("", True, f"{count} random steps")


def _outside(space: Space, observation: object, step: int) -> Finding:
    """What is wrong with an observation, and what would be right."""
    seen = f"step {step}: {observation!r} is not in {space}"
    if not isinstance(space, spaces.Box):
        return Finding("", False, seen, "return what observation_space says, part by part")
    array = np.asarray(observation)
    if array.shape != space.shape:
        hint = (
            f"its shape is {array.shape}, observation_space says {space.shape}: change one of them"
        )
    elif not isinstance(observation, np.ndarray) or not np.can_cast(array.dtype, space.dtype):
        hint = f"return np.asarray(observation, np.{np.dtype(space.dtype).name})"
    else:
        over = np.flatnonzero(np.ravel((array < space.low) | (array > space.high)))
        hint = (
            f"numbers {over[:5].tolist()} are beyond the bounds: widen observation_space, or clip"
        )
    return Finding("", False, seen, hint)


def _ends(env: Watched, limit: int | None, count: int) -> Finding:
    if limit is not None:
        return Finding("", True, f"cut after {limit} steps")
    env.reset(seed=3)
    for step in range(count):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            return Finding("", True, f"after {step + 1} random steps")
    return Finding("", None, f"not within {count} random steps", HINTS["episodes end"])


def _snapshots(env: Watched) -> Finding:
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
    same = np.array_equal(flat(space, expected[0]), flat(space, got[0])) and (expected[1] == got[1])
    return Finding("", same, "" if same else "set_state(get_state()) does not continue the episode")


def _two(id: str, kwargs: Mapping[str, object], env: Watched, watch: Watch, count: int) -> Finding:
    """Whether another one disturbs it, as with envs_per_actor > 1 or after a restart."""
    chosen = actions(env, min(count, _ISOLATED_STEPS))
    alone = trajectory(env, chosen)
    if difference(alone, trajectory(env, chosen)) is not None:
        return Finding("", None, "unknown: its episodes cannot be repeated")
    other = watch(make_env(id, kwargs)[0])
    beside = trajectory(env, chosen, beside=other)
    close_quietly(other)
    where = difference(alone, beside)
    if where is None:
        return Finding("", True, "another one beside it changes nothing")
    return Finding(
        "",
        None,
        f"runs of seed 1 alone and with another one beside it {where}",
        "they share something (a module's variables, a library's state, files): train with"
        " --env_isolation process, or with envs_per_actor 1",
    )


def _isolated(
    id: str, kwargs: Mapping[str, object], env: Watched, watch: Watch, count: int
) -> Finding:
    count = min(count, _ISOLATED_STEPS)
    chosen = actions(env, count)
    started = env.spent
    inline = trajectory(env, chosen)
    seconds = env.spent - started
    repeatable = difference(inline, trajectory(env, chosen)) is None
    limit = 30 + 10 * seconds
    with tempfile.TemporaryDirectory(prefix="exarl-check-") as folder:
        output = Path(folder, "output")
        try:
            other = watch(isolate(id, kwargs, output=output, timeouts=Timeouts(limit, limit))[0])
        except ConfigError as error:
            return Finding("", None, str(error), "only env_isolation process needs it")
        except EnvironmentFailure as error:
            return Finding("", False, f"{error}: {_beginning(output)}")
        try:
            joined = JoinedActions.of(env.action_space)
            there: list[object] = (
                chosen if joined is None else [joined.together(each) for each in chosen]
            )
            seen = trajectory(other, there)
            more = np.median(paces(other, 5 * count)[0])
        finally:
            other.close()
        written = _beginning(output)
    where = difference(inline, seen, as_float32=True) if repeatable else None
    if where is not None:
        return Finding("", False, f"runs of seed 1 in this process and in one of its own {where}")
    more -= np.median(paces(env, 5 * count)[0])
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


def _speed(env: Watched, count: int) -> Finding:
    found = measure(env, 10 * count)
    slowest, reset = found.slowest_s, found.slowest_reset_s
    return Finding(
        "",
        None,
        str(found),
        f"with --env_isolation process, --step_timeout {_generous(slowest):g} and --reset_timeout"
        f" {_generous(reset):g} give it ample time",
        found,
    )


def _generous(seconds: float) -> float:
    """A limit well above what was seen, in round numbers."""
    wanted = max(5.0, 20 * seconds)
    scale = 10 ** math.floor(math.log10(wanted))
    return float(math.ceil(wanted / scale) * scale)


def _beginning(output: Path) -> str:
    """The first line that was written, if any."""
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f"'{lines[0][:80]}'" if lines else ""
