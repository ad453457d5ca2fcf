"""The regulation of the Booster's minimum current as an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from exarl.envs.functional import Functions, integers, number, repeat, split
from exarl.science.booster import data as recorded
from exarl.science.booster import kernel
from exarl.science.booster.surrogate import Surrogate, load_surrogate, predict
from exarl.science.figure import new_figure, to_rgb
from exarl.types import Action, Array, Namespace, Rng

SYNTHETIC = "synthetic"
VIMIN_LIMITS = (103.1, 103.6)
IMINER_LIMIT = 2.0
SHOWN, SETTLING = 40, 10
"""Fewest cycles in a state, for its picture, and cycles that the twin runs before them."""
CENTRE = np.array([103.41474, 0.0, kernel.LINE, kernel.INJECTOR, kernel.INJECTOR])
SPREAD = np.array([0.05, 0.5, 16.0, 2400.0, 2400.0])
"""Offsets and scales that make the five variables of an observation of order 1."""


class Cycle(NamedTuple):
    """A cycle, after its error was read and before the correction is set."""

    window: Array  # [variables, cycles], the newest last, with B:VIMIN of the previous cycle
    surroundings: Array  # kernel.Surroundings, stacked
    deviation: Array  # of the minimum from its setting, in A
    integral: Array  # beta of a regulator given the same errors
    reference: Array  # deviation and beta of the regulator under the same disturbances
    row: Array  # of the recording
    step: Array


class Booster(Functions):
    """See ``ExaBooster`` for the parameters; ``moves`` None means continuous actions."""

    def __init__(
        self,
        data: str | None,
        surrogate: str | None,
        rows: int,
        history: int,
        max_steps: int,
        penalty: float,
        moves: int | None = None,
        max_increment: float = 0.0,
        xp: Namespace = np,
    ) -> None:
        super().__init__(xp)
        if min(history, max_steps, rows) < 1 or penalty < 0:
            raise ValueError("rows, history and max_steps are at least 1, penalty at least 0")
        self.max_steps, self.penalty, self.history = max_steps, penalty, history
        self._centre, self._spread = xp.asarray(CENTRE)[:, None], xp.asarray(SPREAD)[:, None]
        self.names = {
            "data": Path(data).name if data else SYNTHETIC,
            "plant": Path(surrogate).name if surrogate else SYNTHETIC,
        }
        self.surrogate = load_surrogate(surrogate).on(xp) if surrogate else None
        self.kept = max(history, self.surrogate.look_back if self.surrogate else 1, SHOWN)
        self.recording = None
        if data:
            read = recorded.read_recording(data, rows)
            if len(read.setting) < self.kept + max_steps + 1:
                raise ValueError(f"{data} has too few rows for an episode")
            self.recording = recorded.Recording(*(xp.asarray(array) for array in read))
        self.observation_space = spaces.Box(
            -10.0, 10.0, (5,) if history == 1 else (5, history), np.float32
        )
        if moves is not None:
            sizes = self._moves(moves)
            self.increments = xp.asarray(sizes)
            self.action_space: spaces.Space[Any] = spaces.Discrete(len(sizes))
        else:
            if max_increment <= 0:
                raise ValueError(f"max_increment must be positive, not {max_increment}")
            self.increments = None
            self.action_space = spaces.Box(-max_increment, max_increment, (1,), np.float32)

    def _moves(self, moves: int) -> np.ndarray:
        if moves < 3 or moves % 2 == 0:
            raise ValueError(f"moves must be odd and at least 3, not {moves}")
        if self.recording is not None:
            return recorded.moves_of(self.recording, moves)
        known = np.arange(len(kernel.MOVES)) * 2 / 31
        wanted = np.arange(moves // 2 + 1) * 2 / moves
        return recorded.symmetric(np.interp(wanted, known, kernel.MOVES))

    def action_for(self, increment: float) -> int | np.ndarray:
        """The action that changes B:VIMIN by ``increment`` A, or by the nearest possible amount."""
        if self.increments is not None:
            return int(np.abs(np.asarray(self.increments) - increment).argmin())
        space = self.action_space
        assert isinstance(space, spaces.Box)
        return np.clip(np.array([increment], np.float32), space.low, space.high)

    def initial(self, rng: Rng, params: None = None) -> Cycle:
        """A machine under its regulator, at a random time of day."""
        return self._settled(rng) if self.recording is None else self._replayed(rng)

    def _settled(self, rng: Rng) -> Cycle:
        xp = self.xp
        rng, start = split(rng, 2)
        around = kernel.begin(xp, start)
        zero, integral = xp.zeros(()), kernel.balance(around.line)
        vimin = kernel.regulated(around.setting, zero, integral)
        sample = xp.stack([vimin, zero, *kernel.readings(xp, around)])
        state = Cycle(
            xp.stack([sample] * self.kept, -1),
            xp.stack(around),
            zero,
            integral,
            xp.stack([zero, integral]),
            xp.zeros((), int),
            xp.zeros((), int),
        )

        def cycle(carry: tuple[Cycle, Rng]) -> tuple[Cycle, Rng]:
            state, rng = carry
            now, later = split(rng, 2)
            setting = state.surroundings[0]
            vimin = kernel.regulated(setting, state.window[1, -1], state.integral)
            return self._after(state, vimin, now, plant=None), later

        state, _ = repeat(xp, SETTLING + self.kept, cycle, (state, rng))
        reference = xp.stack([state.deviation, state.integral])
        return state._replace(step=xp.zeros((), int), reference=reference)

    def _replayed(self, rng: Rng) -> Cycle:
        xp, recording = self.xp, self.recording
        assert recording is not None
        rng, start = split(rng, 2)
        free = recording.setting.shape[0] - self.kept - self.max_steps
        row = self.kept + integers(start, free)
        window = recording.samples[:, row - self.kept + 1 + xp.arange(self.kept)]
        vimin = xp.concatenate([window[0, :-1], recording.samples[0, row - 1][None]])
        window = xp.concatenate([vimin[None], window[1:]])
        setting, iminer = recording.setting[row], window[1, -1]
        # The part of the regulator's answer that is not proportional is its integral.
        integral = setting - recording.samples[0, row] - kernel.ALPHA * iminer
        around = kernel.begin(xp, rng)._replace(setting=setting, line=window[2, -1] - kernel.LINE)
        deviation = iminer / 10
        return Cycle(
            window,
            xp.stack(around),
            deviation,
            integral,
            xp.stack([deviation, integral]),
            xp.asarray(row),
            xp.zeros((), int),
        )

    def transition(self, state: Cycle, action: Action, rng: Rng, params: None = None) -> Cycle:
        if self.increments is not None:
            increment = self.increments[action]
        else:
            increment = self.xp.asarray(action).reshape(-1)[0]
        return self._after(state, state.window[0, -1] + increment, rng, self.surrogate)

    def _after(self, state: Cycle, vimin: Array, rng: Rng, plant: Surrogate | None) -> Cycle:
        """The next cycle after ``vimin`` is set, with a learnt plant or (None) the twin's."""
        xp = self.xp
        one, two = split(rng, 2)
        now = kernel.Surroundings(*state.surroundings)
        window = xp.concatenate(
            [xp.concatenate([state.window[0, :-1], vimin[None]])[None], state.window[1:]]
        )
        then, reads, row = self._surroundings(now, state.row, one)
        force = kernel.disturbance(xp, two, now.line, reads[1], now.slow)
        if plant is None:
            deviation = kernel.respond(state.deviation, vimin - now.setting, force)
        else:
            deviation = predict(xp, plant, window)[1] / 10
        iminer = kernel.error_signal(xp, deviation)
        sample = xp.stack([vimin, iminer, *reads])
        return Cycle(
            xp.concatenate([window[:, 1:], sample[:, None]], -1),
            xp.stack(then),
            deviation,
            state.integral + kernel.GAMMA * iminer,
            self._reference(state, now.setting, force, row),
            row,
            state.step + 1,
        )

    def _surroundings(
        self, now: kernel.Surroundings, row: Array, rng: Rng
    ) -> tuple[kernel.Surroundings, tuple[Array, ...], Array]:
        """Surroundings, their readings and the row of the recording, one cycle later."""
        then = kernel.advance(self.xp, rng, now)
        if self.recording is None:
            return then, kernel.readings(self.xp, then), row
        row = (row + 1) % self.recording.setting.shape[0]  # at its end the recording starts again
        line, injector, ahead = self.recording.samples[2:, row]
        then = then._replace(setting=self.recording.setting[row], line=line - kernel.LINE)
        return then, (line, injector, ahead), row

    def _reference(self, state: Cycle, setting: Array, force: Array, row: Array) -> Array:
        """The regulator's next deviation and integral; recorded ones if the plant is a surrogate."""
        xp = self.xp
        deviation, integral = state.reference
        if self.recording is not None and self.surrogate is not None:
            deviation = self.recording.samples[1, row] / 10
        else:
            vimin = kernel.regulated(setting, kernel.error_signal(xp, deviation), integral)
            deviation = kernel.respond(deviation, vimin - setting, force)
        iminer = kernel.error_signal(xp, deviation)
        return xp.stack([deviation, integral + kernel.GAMMA * iminer])

    def observation(self, state: Cycle, rng: Rng, params: None = None) -> Array:
        xp = self.xp
        seen = state.window[:, -self.history :]
        seen = (seen - self._centre) / self._spread
        seen = xp.minimum(xp.maximum(seen, -10.0), 10.0).astype(np.float32)
        return seen[:, 0] if self.history == 1 else seen

    def reward(
        self, state: Cycle, action: Action, next_state: Cycle, rng: Rng, params: None = None
    ) -> Array:
        left = self.xp.maximum(self.max_steps - next_state.step, 0)
        lost = self.xp.where(self.terminal(next_state, rng), self.penalty * left, 0.0)
        return -abs(next_state.window[1, -1]) - lost

    def terminal(self, state: Cycle, rng: Rng, params: None = None) -> Array:
        vimin, iminer = state.window[0, -1], state.window[1, -1]
        low, high = VIMIN_LIMITS
        return (abs(iminer) >= IMINER_LIMIT) | (vimin < low) | (vimin > high)

    def state_info(self, state: Cycle, params: None = None) -> dict[str, object]:
        """``regulator_iminer`` is the error of the published regulator in this cycle."""
        return {
            **self.names,
            "vimin": number(self.xp, state.window[0, -1]),
            "iminer": number(self.xp, state.window[1, -1]),
            "setting": number(self.xp, state.surroundings[0]),
            "integral": number(self.xp, state.integral),
            "regulator_iminer": number(self.xp, kernel.error_signal(self.xp, state.reference[0])),
        }

    def picture(self, state: Cycle) -> np.ndarray:
        """Error, reference current and the Main Injector's current in the newest cycles."""
        window = np.asarray(state.window)
        cycles = np.arange(window.shape[1]) + 1 - window.shape[1]
        figure = new_figure(6.4, 6.0)
        shown = (
            (1, "error\nB:IMINER (0.1 A)"),
            (0, "reference current\nB:VIMIN (A)"),
            (3, "Main Injector's current\nI:IB (A)"),
        )
        for axes, (variable, name) in zip(figure.subplots(3, 1, sharex=True), shown, strict=True):
            axes.plot(cycles, window[variable], color="#1f5fa8", marker=".", markersize=3)
            axes.set(ylabel=name)
            axes.grid(color="#e3e3e3")
            if variable == 1:
                axes.set_ylim(*np.array([-1.1, 1.1]) * max(0.5, np.abs(window[1]).max()))
                axes.set_title(f"step {int(state.step)}, data: {self.names['data']}")
        axes.set(xlabel="cycles of 15 Hz before now")
        return to_rgb(figure)
