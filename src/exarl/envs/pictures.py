"""Pictures of environments for a video, or the reason why there are none."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import numpy as np

from exarl.envs.base import Env
from exarl.envs.registration import creator_of, extra_for, find_spec
from exarl.errors import ConfigError, EnvironmentFailure


def check_pictures(id: str) -> None:
    """ConfigError for an environment that cannot be asked for pictures."""
    parameters = inspect.signature(creator_of(find_spec(id))).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if "render_mode" not in parameters and not open_ended:
        raise ConfigError(f"--video: {id} makes no pictures: its constructor takes no render_mode")


def picture(env: Env) -> np.ndarray:
    """A picture of ``env`` as bytes [height, width, 3]; ConfigError when it makes none."""
    try:
        frame: Any = env.render()
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ConfigError(f"--video: no pictures here: {error}{extra_for(error)}") from error
    except EnvironmentFailure as error:  # of an environment in a process of its own
        raise ConfigError(f"--video: no pictures here: {error}") from error
    found = np.asarray(frame)
    if found.ndim != 3 or found.shape[2] != 3 or found.dtype.kind not in "uif":
        seen = "nothing" if frame is None else f"{type(frame).__name__} of shape {found.shape}"
        raise ConfigError(f"--video: render returned {seen}, not a picture [height, width, 3]")
    return found.astype(np.uint8)
