"""What happens when an environment fails: it is counted, made again, and given up in the end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from exarl.envs.base import Env
from exarl.envs.outcome import not_finite
from exarl.errors import EnvironmentFailure
from exarl.types import FAILURES

log = logging.getLogger(__name__)

FAILING = (Exception, SystemExit)
"""What an environment may raise that is its own failure and not the end of the program."""

STEADY = 20
"""Good steps after which failures are counted from 1 again."""

_LOUD = 3  # failures of an environment that appear on the terminal; the others are only in the log

_LARGEST = float(np.finfo(np.float32).max)

MakeEnv = Callable[[], Env]


class Guard:
    """Makes one environment again when it fails, up to ``patience`` times in a row.

    An episode that reaches its end, or ``STEADY`` good steps, begins a new count.
    """

    def __init__(self, make: MakeEnv, patience: int) -> None:
        self._make = make
        self._patience = patience
        self._restarts = 0
        self._in_a_row = 0
        self._last_episode = -1

    def restart(
        self,
        env: Env,
        at: tuple[int, int, int],
        error: BaseException,
        counts: np.ndarray,
    ) -> Env:
        """Return a new environment to use instead of ``env``; ``at`` is its number, its episode and the
        steps made in that episode. The kind of failure is added to ``counts``.

        EnvironmentFailure, naming the cause, when this has happened too often in a row.
        """
        who, episode, steps = at
        if episode > self._last_episode + 1 or steps >= STEADY:
            self._in_a_row = 0
        self._last_episode = episode
        when = moment(episode, steps)
        while True:
            failure = as_failure(who, error)
            counts[FAILURES.index(failure.kind)] += 1
            self._in_a_row += 1
            if self._in_a_row >= self._patience:
                raise EnvironmentFailure(
                    f"environment {who} failed {self._in_a_row} times in a row (max_env_failures),"
                    f" the last time in {when}: {failure}",
                    failure.kind,
                ) from error
            self._restarts += 1
            level = logging.WARNING if self._restarts <= _LOUD else logging.INFO
            log.log(level, "%s (%s; %s); it is restarted", failure, failure.kind, when)
            close_quietly(env)
            try:
                return self._make()
            except FAILING as again:
                error = again


def moment(episode: int, steps: int) -> str:
    """When something happened in an environment, for a message."""
    return f"episode {episode}, step {steps + 1}"


def in_words(error: BaseException) -> str:
    """``Type: message`` of an exception, also of one whose own ``__str__`` raises."""
    try:
        message = str(error)
    except FAILING:
        message = "(its message cannot be shown)"
    return f"{type(error).__name__}: {message}"


def as_failure(who: int, error: BaseException) -> EnvironmentFailure:
    """What environment ``who`` raised as an EnvironmentFailure."""
    if isinstance(error, EnvironmentFailure):
        return error
    return EnvironmentFailure(f"environment {who}: {in_words(error)}")


def give_up(who: int, when: str, error: BaseException, advice: str) -> NoReturn:
    """Raise ``error`` of an environment that is not to be restarted, after a line with ``advice``.

    A SystemExit is raised as an EnvironmentFailure: it must not end the program with success.
    """
    log.error("environment %d failed (%s)%s", who, when, advice)
    failure = as_failure(who, error) if isinstance(error, SystemExit) else error
    failure.environment = who  # type: ignore[attr-defined]  # for the run's summary
    raise failure from (error if failure is not error else error.__cause__)


def close_quietly(env: Env) -> None:
    """Close an environment that has failed; ignore what ``close`` raises."""
    with contextlib.suppress(*FAILING):
        env.close()


def close_at_end(who: int, env: Env) -> None:
    """Close an environment that is not needed any more; log a warning if that fails."""
    try:
        env.close()
    except FAILING as error:
        log.warning("environment %d: close raised %s", who, in_words(error))


def check_numbers(who: int, call: str, observation: object, reward: float = 0.0) -> None:
    """EnvironmentFailure when a number is NaN, infinite, or becomes so as float32."""
    if not abs(reward) <= _LARGEST:
        raise EnvironmentFailure(f"environment {who}: {call} returned the reward {reward}", "nan")
    seen = np.asarray(observation)
    if seen.dtype.kind == "f" and not (np.abs(seen) <= _LARGEST).all():
        what = not_finite(seen, ~(np.abs(seen) <= _LARGEST))
        raise EnvironmentFailure(
            f"environment {who}: {call} returned an observation with {what}", "nan"
        )
