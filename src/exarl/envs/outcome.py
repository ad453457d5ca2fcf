"""Takes apart what ``reset`` and ``step`` return; errors for what does not follow Gymnasium."""

from __future__ import annotations

import numpy as np

from exarl.envs.base import Env

OLD_RESET = (
    "reset takes no seed, as in Gym before 0.26: write 'def reset(self, *, seed=None, options=None)',"
    " call super().reset(seed=seed) in it, and return observation, info"
)
_VALUES = (int, float, np.generic, np.ndarray)  # parts of an observation, not info
MAX_NAMED = 5
"""Numbers of an observation that a message names."""


class ContractError(ValueError):
    """An environment that does not follow Gymnasium's interface; the message says what to change."""


def begin(env: Env, seed: int | None = None) -> object:
    """Reset ``env``; its first observation. ContractError when reset is not Gymnasium's."""
    return begin_with_info(env, seed)[0]


def begin_with_info(env: Env, seed: int | None = None) -> tuple[object, object]:
    """Like ``begin``, for the observation and ``info``."""
    try:
        found = env.reset() if seed is None else env.reset(seed=seed)
    except TypeError as error:
        if "unexpected keyword argument 'seed'" in str(error):
            raise ContractError(OLD_RESET) from error
        raise
    if not isinstance(found, tuple | list) or len(found) != 2 or isinstance(found[1], _VALUES):
        raise ContractError(
            "reset returned an observation without info, as in Gym before 0.26: return observation,"
            " info, of which the second is a dict, such as {}"
        )
    return found[0], found[1]


def not_five(found: object) -> ContractError:
    """The error for a ``step`` whose result cannot be taken as five values."""
    count = len(found) if isinstance(found, tuple | list) else 1
    if count != 4:
        return ContractError(
            f"step returned {count} values, not the five observation, reward, terminated,"
            " truncated, info"
        )
    return ContractError(
        "step returned 4 values, as in Gym before 0.26: return observation, reward, terminated,"
        " truncated, info, where truncated is True when a limit on steps ended the episode"
    )


def as_number(reward: object) -> float:
    """A reward as a number, also when it is an array of one; ContractError otherwise."""
    if not isinstance(reward, np.ndarray):
        try:
            return float(reward)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            pass
    array = np.asarray(reward)
    if array.size == 1 and array.dtype.kind in "biuf":
        return float(array.item())
    what = f"of shape {array.shape}" if array.ndim else repr(reward)[:60]
    raise ContractError(
        f"a reward {what}, but a reward is one number: with several, give --weights"
    )


def not_finite(values: np.ndarray, bad: np.ndarray) -> str:
    """How many numbers are bad and which: ``2 of 4 numbers NaN or infinite (number 0, 3)``."""
    places = [tuple(place) if len(place) > 1 else place[0] for place in np.argwhere(bad).tolist()]
    named = ", ".join(str(place) for place in places[:MAX_NAMED])
    more = ", ..." if len(places) > MAX_NAMED else ""
    which = f" (number {named}{more})" if values.ndim else ""
    return f"{len(places)} of {values.size} numbers NaN or infinite{which}"
