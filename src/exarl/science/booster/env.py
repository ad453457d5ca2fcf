"""ExaBoosterDiscrete-v0 and ExaBooster-v0: regulation of the Fermilab Booster's magnet current."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from exarl.envs.functional import FunctionalEnv
from exarl.science.booster import kernel
from exarl.science.booster.data import ROWS
from exarl.science.booster.functions import Booster


class BoosterEnv(FunctionalEnv):
    """The common part of the two environments."""

    functions: Booster

    def describe(self) -> dict[str, str]:
        """The sources of surroundings and plant: a file's name, or 'synthetic'."""
        return dict(self.functions.names)

    def action_for(self, increment: float) -> int | np.ndarray:
        """The action that changes B:VIMIN by ``increment`` A, or by the nearest possible amount."""
        return self.functions.action_for(increment)


class ExaBooster(BoosterEnv):
    """Regulation of the minimum of the Fermilab Booster's magnet current, in cycles of 15 Hz.

    An action changes the reference current B:VIMIN by up to ``max_increment`` A. Observation: B:VIMIN,
    B:IMINER, B:LINFRQ, I:IB and I:MDAT40 of the last ``history`` cycles, centred and scaled. The reward
    is minus the absolute value of B:IMINER. The episode ends, and costs ``penalty`` for each of the
    remaining ``max_steps``, when |B:IMINER| reaches 2 or B:VIMIN is outside 103.1 to 103.6 A.

    ``data`` is the path of the BOOSTR csv, of which ``rows`` rows are read; without it the surroundings
    are those of a synthetic twin. ``surrogate`` is the path of a learnt plant (Keras's .h5, or the .npz
    of ``exarl surrogate``); without it the plant is the twin's. ``info`` names both sources.
    """

    def __init__(
        self,
        data: str | None = None,
        surrogate: str | None = None,
        rows: int = ROWS,
        max_increment: float = 0.06,
        history: int = 1,
        max_steps: int = 100,
        penalty: float = 5.0,
        render_mode: str | None = None,
    ) -> None:
        make = partial(
            Booster,
            data,
            surrogate,
            rows,
            history,
            max_steps,
            penalty,
            max_increment=max_increment,
        )
        super().__init__(make, render_mode)


class ExaBoosterDiscrete(BoosterEnv):
    """``ExaBooster`` with ``moves`` (an odd number of) changes of B:VIMIN to choose from.

    They are even quantiles of the changes that the regulator itself makes, with 0 in the middle.
    """

    def __init__(
        self,
        data: str | None = None,
        surrogate: str | None = None,
        rows: int = ROWS,
        moves: int = 31,
        history: int = 1,
        max_steps: int = 100,
        penalty: float = 5.0,
        render_mode: str | None = None,
    ) -> None:
        make = partial(Booster, data, surrogate, rows, history, max_steps, penalty, moves=moves)
        super().__init__(make, render_mode)


def hold(info: Mapping[str, float]) -> float:
    """Baseline: no change of B:VIMIN (for ``action_for``)."""
    return 0.0


def regulate(info: Mapping[str, float]) -> float:
    """Baseline: the published regulator's change of B:VIMIN, from the ``info`` of reset or step."""
    setting, iminer, integral = (np.asarray(info[k]) for k in ("setting", "iminer", "integral"))
    wanted = kernel.regulated(setting, iminer, integral)
    return float(wanted - info["vimin"])
