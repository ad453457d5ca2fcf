"""The TIP4P potential of rigid water (Jorgensen et al., J. Chem. Phys. 79 (1983) 926), over ``xp``.

A potential is a function ``potential(xp, n)`` that returns the energy function of ``n`` molecules:
``energies(atoms) -> (molecular, gradient)``. ``atoms`` [n, 3, 3] holds O, H and H of each molecule in
Angstrom, ``molecular`` [n] each molecule's share of the interaction energy in kJ/mol (their sum is
the energy of the cluster; half of every pair energy for a pair potential), and ``gradient``
[n, 3, 3] the derivative of the whole energy by the atoms' positions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exarl.types import Array, Namespace

BOND, ANGLE, DUMMY = 0.9572, np.radians(104.52), 0.15
"""Length O-H in Angstrom, angle H-O-H, and distance of the negative charge from O on the bisector."""
CHARGE = 0.52  # of each hydrogen, in elementary charges
KCAL = 4.184
REPULSION, ATTRACTION = 600_000 * KCAL, 610 * KCAL  # of two oxygens, kJ/mol by A^12 and A^6
COULOMB = 1389.354848  # kJ/mol Angstrom by squared elementary charge

Energies = Callable[[Array], tuple[Array, Array]]
Potential = Callable[[Namespace, int], Energies]

MINIMA = {
    2: -26.08762,
    3: -69.99403,
    4: -116.59062,
    5: -152.10925,
    6: -197.78092,
    7: -243.57288,
    8: -305.51893,
    9: -344.43587,
    10: -391.02344,
    11: -431.48994,
    12: -492.90925,
    13: -532.97162,
    14: -582.99228,
    15: -628.37352,
    18: -772.11888,
    19: -821.03861,
    20: -872.99,
    21: -916.71,
}
"""Lowest known energies in kJ/mol. For n = 2, 6, 8, 10, 12, 20, 21 they are those of Wales and Hodges
(Chem. Phys. Lett. 286 (1998) 65), with more digits where EXARL's search reproduced them; the others
are results of that search."""


def monomer() -> np.ndarray:
    """O, H and H of one molecule: O at the origin, the bisector along z, the plane x-z."""
    x, z = BOND * np.sin(ANGLE / 2), BOND * np.cos(ANGLE / 2)
    return np.array([[0, 0, 0], [x, 0, z], [-x, 0, z]])


def tip4p(xp: Namespace, n: int) -> Energies:
    """TIP4P without a cut-off, as a potential (see above)."""
    weight = DUMMY / (2 * BOND * np.cos(ANGLE / 2))
    # O, H, H and the massless charge M from the three atoms; O has no charge, M no repulsion.
    placing = xp.asarray([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1 - 2 * weight, weight, weight]])
    charges = np.tile([0, CHARGE, CHARGE, -2 * CHARGE], n)
    others = 1 - np.kron(np.eye(n), np.ones((4, 4)))
    oxygens = others * np.kron(np.ones((n, n)), np.diag([1, 0, 0, 0]))
    charge = xp.asarray(COULOMB * np.outer(charges, charges) * others)
    repulsion, attraction = xp.asarray(REPULSION * oxygens), xp.asarray(ATTRACTION * oxygens)
    itself = xp.eye(4 * n)

    def energies(atoms: Array) -> tuple[Array, Array]:
        sites = (placing @ atoms).reshape(4 * n, 3)
        columns = sites.T
        apart = columns[:, :, None] - columns[:, None, :]
        inverse = 1 / ((apart * apart).sum(0) + itself)  # of squared distances
        sixth = inverse * inverse * inverse
        coulomb = charge * xp.sqrt(inverse)
        bulk = repulsion * sixth
        energy = coulomb + (bulk - attraction) * sixth
        slope = inverse * (coulomb + (12 * bulk - 6 * attraction) * sixth)  # -dE/dr by r
        pull = slope @ sites - slope.sum(1)[:, None] * sites
        return energy.reshape(n, -1).sum(1) / 2, placing.T @ pull.reshape(n, 4, 3)

    return energies
