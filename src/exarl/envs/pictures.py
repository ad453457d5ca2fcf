"""Pictures of environments for a video, or the reason why there are none."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from exarl.envs.base import Env
from exarl.envs.registration import creator_of, extra_for, find_spec
from exarl.errors import ConfigError, EnvironmentFailure

MIN_WIDTH = 320
"""Pixels; narrower pictures are enlarged by a whole number, so that the line below them fits."""


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


def captioned(frame: np.ndarray, text: str) -> np.ndarray:
    """``frame`` [height, width, 3], enlarged if it is narrow, with ``text`` in a strip below it."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    factor = -(-MIN_WIDTH // frame.shape[1])
    enlarged = frame.repeat(factor, axis=0).repeat(factor, axis=1)
    size = max(14, enlarged.shape[1] // 40)
    strip = Image.new("RGB", (enlarged.shape[1], 2 * size), "white")
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    font = ImageFont.truetype(str(path), size)
    ImageDraw.Draw(strip).text((size // 2, size), text, "black", font, anchor="lm")
    return np.concatenate([enlarged, np.asarray(strip)])
