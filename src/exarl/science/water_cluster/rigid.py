"""Rigid molecules over ``xp``: a place and a quaternion each, and the atoms these describe.

The coordinates of ``n`` molecules are one vector of 7 n numbers, first the places of the oxygens
[n, 3], then quaternions [n, 4] (real part first) of any length: only their directions matter. With a
longer quaternion a minimiser turns a molecule less for the same gradient.
"""

from __future__ import annotations

import numpy as np

from exarl.science.water_cluster.tip4p import Energies
from exarl.types import Array, Namespace


def pack(xp: Namespace, places: Array, quaternions: Array) -> Array:
    """Places [n, 3] and quaternions [n, 4] as coordinates [7 n]."""
    return xp.concatenate([places.ravel(), quaternions.ravel()])


def unpack(coordinates: Array) -> tuple[Array, Array]:
    """Coordinates [7 n] as places [n, 3] and quaternions [n, 4]."""
    n = len(coordinates) // 7
    return coordinates[: 3 * n].reshape(n, 3), coordinates[3 * n :].reshape(n, 4)


def atoms_of(coordinates: Array, forms: Array) -> Array:
    """The atoms [n, 3, 3] of molecules whose shape ``forms`` describes."""
    places, quaternions = unpack(coordinates)
    return places[:, None] + _arms(quaternions, forms).reshape(-1, 3, 3)


def rigid(xp: Namespace, energies: Energies, forms: Array) -> Energies:
    """``energies`` of atoms [n, 3, 3] as a function of coordinates: (molecular [n], gradient [7 n])."""
    backwards = forms.T

    def function(coordinates: Array) -> tuple[Array, Array]:
        places, quaternions = unpack(coordinates)
        arms = _arms(quaternions, forms)
        molecular, gradient = energies(places[:, None] + arms.reshape(-1, 3, 3))
        flat = gradient.reshape(-1, 9)
        # An arm is q'Fq / q'q with a form F; its gradient is 2 (Fq - arm q) / q'q.
        slopes = (flat @ backwards).reshape(-1, 4, 4) @ quaternions[:, :, None]
        turned = slopes[:, :, 0] - (flat * arms).sum(1, keepdims=True) * quaternions
        length = (quaternions * quaternions).sum(1, keepdims=True)
        return molecular, pack(xp, gradient.sum(1), turned * (2 / length))

    return function


def forms_of(xp: Namespace, body: np.ndarray) -> Array:
    """[16, 9]: the quadratic forms of a unit quaternion that turn the three atoms of ``body`` [3, 3],
    of which the first is at the origin."""
    unit = np.eye(4)
    turned = [[_conjugated(p, q, body) for q in unit] for p in unit]
    forms = np.array(turned).reshape(4, 4, 9)
    return xp.asarray((forms + forms.swapaxes(0, 1)).reshape(16, 9) / 2)


def _conjugated(p: np.ndarray, q: np.ndarray, body: np.ndarray) -> np.ndarray:
    """p b q* for each vector b of the body, which is b turned when p = q is a unit quaternion."""
    vectors = np.pad(body, ((0, 0), (1, 0)))
    product = multiply(np, multiply(np, p, vectors), q * [1, -1, -1, -1])
    return np.asarray(product[:, 1:])


def _arms(quaternions: Array, forms: Array) -> Array:
    """[n, 9]: the atoms of each molecule relative to its place."""
    squares = (quaternions[:, :, None] * quaternions[:, None, :]).reshape(-1, 16)
    return squares @ forms / (quaternions * quaternions).sum(1, keepdims=True)


def multiply(xp: Namespace, one: Array, other: Array) -> Array:
    """The products [n, 4] of quaternions: ``other`` turns first."""
    a, u = one[..., :1], one[..., 1:]
    b, v = other[..., :1], other[..., 1:]
    real = a * b - (u * v).sum(-1, keepdims=True)
    return xp.concatenate([real, a * v + b * u + cross(xp, u, v)], -1)


def cross(xp: Namespace, one: Array, other: Array) -> Array:
    """The vector products [..., 3]; for few vectors several times faster than NumPy's own."""
    a, b, c = one[..., 0], one[..., 1], one[..., 2]
    d, e, f = other[..., 0], other[..., 1], other[..., 2]
    return xp.stack([b * f - c * e, c * d - a * f, a * e - b * d], -1)


def turn(xp: Namespace, axis: Array, angle: Array) -> Array:
    """The unit quaternion [..., 4] of a turn by ``angle`` [...] about the unit vector ``axis``."""
    half = xp.asarray(angle)[..., None] / 2
    return xp.concatenate([xp.cos(half), xp.sin(half) * axis], -1)


def fitted(atoms: np.ndarray, body: np.ndarray) -> np.ndarray:
    """The coordinates [7 n] of the rigid molecules nearest to ``atoms`` [n, 3, 3], oxygens in place."""
    places = atoms[:, 0]
    arms = atoms[:, 1:] - places[:, None]
    left, _, right = np.linalg.svd(np.einsum("nai,aj->nij", arms, body[1:] - body[0]))
    left[:, :, 2] *= np.sign(np.linalg.det(left @ right))[:, None]
    return np.asarray(pack(np, places, _quaternions(left @ right)))


def _quaternions(matrices: np.ndarray) -> np.ndarray:
    """Unit quaternions [n, 4] of rotation matrices: the top eigenvector of Bar-Itzhack's matrix."""
    xx, yy, zz = (matrices[:, i, i] for i in range(3))
    skew = [matrices[:, j, i] - matrices[:, i, j] for i, j in ((1, 2), (2, 0), (0, 1))]
    both = {(i, j): matrices[:, i, j] + matrices[:, j, i] for i, j in ((0, 1), (0, 2), (1, 2))}
    rows = [
        [xx + yy + zz, *skew],
        [skew[0], xx - yy - zz, both[0, 1], both[0, 2]],
        [skew[1], both[0, 1], yy - xx - zz, both[1, 2]],
        [skew[2], both[0, 2], both[1, 2], zz - xx - yy],
    ]
    _, vectors = np.linalg.eigh(np.array(rows).transpose(2, 0, 1))
    return vectors[:, :, -1]
