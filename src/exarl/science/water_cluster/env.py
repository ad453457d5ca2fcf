"""ExaWaterClusterDiscrete-v0, the Gymnasium form."""

from __future__ import annotations

from functools import partial
from typing import Literal

from exarl.envs.functional import FunctionalEnv
from exarl.science.water_cluster.functions import WaterCluster


class ExaWaterClusterDiscrete(FunctionalEnv):
    """Find the lowest minimum of a cluster of rigid water molecules by moving one at a time.

    ``n_waters``: molecules. ``potential``: "tip4p", or "module:function" (see ``tip4p.py``).
    ``start``: "random", or an xyz file of initial clusters. ``target``: energy in kJ/mol that ends an
    episode; None: the lowest known one, if known. ``moves``: "symmetric", or "exarl" for those of the
    original EXARL. ``shift``: of a molecule, in Angstrom (symmetric moves). ``shake``: standard
    deviation of random shifts (and, in radians, turns) of all molecules in each step, in Angstrom.
    ``tolerance``: of the gradient in a minimum, in kJ/mol/Angstrom. ``tell_atoms``: info has the atoms'
    positions.
    """

    def __init__(
        self,
        n_waters: int = 8,
        potential: str = "tip4p",
        start: str = "random",
        target: float | None = None,
        moves: Literal["symmetric", "exarl"] = "symmetric",
        shift: float = 2.0,
        shake: float = 0.3,
        tolerance: float = 1e-3,
        tell_atoms: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            partial(
                WaterCluster,
                n_waters=n_waters,
                potential=potential,
                start=start,
                target=target,
                moves=moves,
                shift=shift,
                shake=shake,
                tolerance=tolerance,
                tell_atoms=tell_atoms,
            ),
            render_mode,
        )
