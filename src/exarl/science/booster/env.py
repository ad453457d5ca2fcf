"""ExaBoosterDiscrete-v0 and ExaBooster-v0: better than the regulator in operation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from exarl.envs.functional import FunctionalEnv
from exarl.science.booster import kernel
from exarl.science.booster.data import ROWS
from exarl.science.booster.functions import Booster


class BoosterEnv(FunctionalEnv):
    """What the two environments have in common."""

    functions: Booster

    def describe(self) -> dict[str, str]:
        """What surroundings and plant are: a file's name, or 'synthetic'."""
        return dict(self.functions.names)

    def action_for(self, increment: float) -> Any:
        """The action that changes B:VIMIN by ``increment`` A, or by what comes nearest to it."""
        return self.functions.action_for(increment)


class ExaBooster(BoosterEnv):
    """Regulation of the minimum of the Fermilab Booster's magnet current, in cycles of 15 Hz.

    An action changes the reference current B:VIMIN by up to ``max_increment`` A. Observation: B:VIMIN,
    B:IMINER, B:LINFRQ, I:IB and I:MDAT40 of the last ``history`` cycles, centred and scaled. The reward
    is minus the size of B:IMINER. The episode ends, and costs ``penalty`` for each of the remaining
    ``max_steps``, when B:IMINER reaches 2 in size or B:VIMIN leaves 103.1 to 103.6 A.

    ``data`` is the path of the BOOSTR csv, of which ``rows`` rows are read; without it the surroundings
    are a synthetic twin's. ``surrogate`` is the path of a learnt plant (Keras's .h5, or the .npz of
    ``exarl surrogate``); without it the plant is the twin's. ``info`` tells, as ``data`` and ``plant``.
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
    """``ExaBooster`` with ``moves`` (odd) changes of B:VIMIN to choose from.

    They lie at even quantiles of the changes that the regulator makes itself, with 0 in the middle.
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


def hold(info: Mapping[str, Any]) -> float:
    """Baseline: leave B:VIMIN as it is (the change, for ``action_for``)."""
    return 0.0


def regulate(info: Mapping[str, Any]) -> float:
    """Baseline: the published regulator's change of B:VIMIN, from what ``reset`` or ``step`` told."""
    wanted = kernel.regulated(info["setting"], info["iminer"], info["integral"])
    return float(wanted - info["vimin"])
