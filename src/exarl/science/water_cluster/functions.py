"""ExaWaterClusterDiscrete-v0 as pure functions: a molecule is moved, the cluster relaxes."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from gymnasium import spaces

from exarl.envs.functional import Functions, integers, normal, repeat, split, uniform
from exarl.registry import import_named
from exarl.science.water_cluster.quench import minimise
from exarl.science.water_cluster.rigid import (
    atoms_of,
    forms_of,
    multiply,
    pack,
    rigid,
    turn,
    unpack,
)
from exarl.science.water_cluster.tip4p import MINIMA, Potential, monomer, tip4p
from exarl.science.water_cluster.xyz import read_clusters
from exarl.types import Action, Array, Namespace, Rng

MOVES = 5
"""Number of turns of a molecule, and of shifts: 25 actions per molecule."""
STIFFNESS = 0.7
"""Length of the quaternions, which sets the ratio of turns to shifts in the minimiser."""
REWARD_UNIT = 10.0  # kJ/mol
REACHED = 0.01
"""Largest distance in kJ/mol from the lowest known energy that counts as reaching it."""
ALONE = 6.0
"""A molecule whose nearest neighbour is farther than this, in Angstrom, has left the cluster."""
FUSED = -70.0
"""Energy per molecule, in kJ/mol, below which two charges must have collapsed onto each other, since
TIP4P's negative charge has no repulsion of its own. TIP4P ice has about -56."""
BOND = 2.5
"""Distance of H and O, in Angstrom, at which a hydrogen bond counts as half."""
CLOSE = 2.9
"""Distance of neighbours in a random initial ball, in Angstrom."""
BISECTOR, NORMAL, SIDEWAYS = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0]], float)
"""Axes of a molecule in its own frame; the last is the direction from H to H."""
TURNS = {
    "symmetric": (
        np.array([BISECTOR, BISECTOR, NORMAL, NORMAL, SIDEWAYS]),
        np.radians([0, 90, 120, -120, 180]),
    ),
    "exarl": (np.array([BISECTOR] * MOVES), np.radians([80, 90, 100, 110, 120])),
}
"""Axes and angles. The inverse of each symmetric turn is also one of them (a half turn about the
bisector changes nothing)."""
EXARL_SHIFTS = np.array([0.50, 0.55, 0.60, 0.65, 0.70])[:, None] * np.ones(3)


class Waters(NamedTuple):
    """A relaxed cluster."""

    coordinates: Array  # [7 n], see ``rigid``
    molecular: Array  # [n] energies in kJ/mol
    energy: Array  # sum of these
    lowest: Array  # lowest energy of this episode


class WaterCluster(Functions):
    """``n_waters`` rigid molecules; the parameters are those of ``ExaWaterClusterDiscrete``."""

    costly_reset = True

    def __init__(
        self,
        n_waters: int = 8,
        potential: str = "tip4p",
        start: str = "random",
        target: float | None = None,
        moves: str = "symmetric",
        shift: float = 2.0,
        shake: float = 0.3,
        tolerance: float = 1e-3,
        tell_atoms: bool = False,
        xp: Namespace = np,
    ) -> None:
        super().__init__(xp)
        if n_waters < 2:
            raise ValueError(f"n_waters must be at least 2, not {n_waters}")
        if moves not in TURNS:
            raise ValueError(f"moves must be one of {', '.join(TURNS)}, not '{moves}'")
        known = MINIMA.get(n_waters) if potential == "tip4p" else None
        self.target = known if target is None else target
        self.reference = -45.0 * n_waters if self.target is None else self.target
        self.n, self.moves, self.shift, self.shake = n_waters, moves, shift, shake
        self.tolerance, self.tell_atoms = tolerance, tell_atoms
        body = monomer()
        self.forms = forms_of(xp, body)
        random = start == "random"
        self.starts = None if random else xp.asarray(read_clusters(start, n_waters, body))
        self.energies = rigid(xp, load_potential(potential)(xp, n_waters), self.forms)
        self.observation_space = spaces.Box(-10, 10, (1 + 4 * n_waters,), np.float32)
        self.action_space = spaces.Discrete(MOVES * MOVES * n_waters)

    def initial(self, rng: Rng, params: None = None) -> Waters:
        """A random ball of molecules, or one of the given clusters, relaxed."""
        starts = self.starts
        begun = self.ball(rng) if starts is None else starts[integers(rng, len(starts))]
        relaxed = self.relaxed(begun, self.measured(begun))
        return relaxed._replace(lowest=relaxed.energy)

    def transition(self, state: Waters, action: Action, rng: Rng, params: None = None) -> Waters:
        """Move a molecule, shake all, relax; the state is unchanged when no valid minimum results."""
        first, second = split(rng, 2)
        return self.relaxed(self.shaken(self.moved(state, action, first), second), state)

    def reward(
        self, state: Waters, action: Action, next_state: Waters, rng: Rng, params: None = None
    ) -> Array:
        """The decrease of the energy in 10 kJ/mol; its sum over an episode is the total decrease."""
        return (state.energy - next_state.energy) / REWARD_UNIT

    def terminal(self, state: Waters, rng: Rng, params: None = None) -> Array:
        """Whether the lowest known energy is reached, or a molecule has left the cluster."""
        xp = self.xp
        places, _ = unpack(state.coordinates)
        nearest = (_distances(xp, places) + xp.diag(xp.full(self.n, xp.inf))).min(1)
        reached = False if self.target is None else state.energy < self.target + REACHED
        return (nearest > ALONE).any() | reached

    def observation(self, state: Waters, rng: Rng, params: None = None) -> Array:
        """The energy above the lowest known one, then four numbers per molecule, the most weakly bound
        first: energy, distance from the centre, hydrogen bonds donated and accepted."""
        xp, n = self.xp, self.n
        atoms = self.atoms(state)
        oxygens, hydrogens = atoms[:, 0], atoms[:, 1:].reshape(2 * n, 3)
        reach = _distances(xp, hydrogens, oxygens).reshape(n, 2, n)
        bonds = (1 - xp.eye(n)) * (1 / (1 + xp.exp(xp.minimum((reach - BOND) / 0.1, 50)))).sum(1)
        centred = oxygens - oxygens.mean(0)
        columns = [
            state.molecular / 25,
            xp.sqrt((centred * centred).sum(1)) / 5,
            bonds.sum(1) / 2,
            bonds.sum(0) / 2,
        ]
        table = xp.stack(columns, 1)[xp.argsort(-state.molecular)]
        above = (state.energy - self.reference) / 25
        seen = xp.concatenate([xp.stack([above]), table.ravel()])
        return xp.clip(seen, -10, 10).astype(np.float32)

    def state_info(self, state: Waters, params: None = None) -> dict[str, object]:
        """``energy`` and the episode's ``lowest`` in kJ/mol; ``atoms`` [n, 3, 3] if asked for."""
        info: dict[str, object] = {"energy": state.energy, "lowest": state.lowest}
        return info | {"atoms": self.atoms(state)} if self.tell_atoms else info

    def atoms(self, state: Waters) -> Array:
        """O, H and H of each molecule, [n, 3, 3] in Angstrom."""
        return atoms_of(state.coordinates, self.forms)

    def picture(self, state: Waters) -> np.ndarray:
        """The cluster with its hydrogen bonds."""
        from exarl.science.water_cluster.picture import draw

        return draw(np.asarray(self.atoms(state)), float(state.energy), self.target)

    def ball(self, rng: Rng) -> Array:
        """Coordinates of molecules at random places in a ball, without overlaps."""
        xp, n = self.xp, self.n

        def pushed(places: Array) -> Array:
            away = places[:, None] - places[None]
            distance = _distances(xp, places) + 10 * xp.eye(n)
            close = xp.maximum(0, CLOSE - distance) / distance
            return places + (close[:, :, None] * away).sum(1) / 2

        first, second, third = split(rng, 3)
        direction = _unit(xp, normal(first, (n, 3)))
        radius = 0.6 * CLOSE * (n * uniform(second, (n, 1))) ** (1 / 3)
        quaternions = STIFFNESS * _unit(xp, normal(third, (n, 4)))
        return pack(xp, repeat(xp, 40, pushed, radius * direction), quaternions)

    def moved(self, state: Waters, action: Action, rng: Rng) -> Array:
        """The coordinates after a move, not yet relaxed."""
        xp, n = self.xp, self.n
        places, quaternions = unpack(state.coordinates)
        chosen = xp.argsort(-state.molecular)[action // MOVES**2]
        axes, angles = (xp.asarray(table) for table in TURNS[self.moves])
        which = action // MOVES % MOVES
        turned = multiply(xp, quaternions, turn(xp, axes[which], angles[which])[None])
        by = self.shifts(places, chosen, rng)[action % MOVES]
        mask = (xp.arange(n) == chosen)[:, None]
        return pack(xp, places + mask * by, xp.where(mask, turned, quaternions))

    def shifts(self, places: Array, chosen: Array, rng: Rng) -> Array:
        """The five shifts [5, 3] of the chosen molecule: none, away from the centre and towards it,
        sideways in a random direction, and to the far side of the cluster."""
        xp = self.xp
        if self.moves == "exarl":
            return xp.asarray(EXARL_SHIFTS)
        centre = places.mean(0)
        outwards = _unit(xp, places[chosen] - centre)
        random = normal(rng, (3,))
        sideways = _unit(xp, random - (random @ outwards) * outwards)
        radius = _length(xp, places - centre).max() + self.shift
        across = centre - radius * outwards - places[chosen]
        out = self.shift * outwards
        return xp.stack([xp.zeros(3), out, -out, self.shift * sideways, across])

    def shaken(self, coordinates: Array, rng: Rng) -> Array:
        """The coordinates after small random shifts and turns of all molecules, which prevent a policy
        from cycling for ever."""
        xp = self.xp
        places, quaternions = unpack(self.shake * normal(rng, (7 * self.n,)))
        return coordinates + pack(xp, places, STIFFNESS / 2 * quaternions)

    def measured(self, coordinates: Array) -> Waters:
        """The cluster at ``coordinates``, without relaxation."""
        molecular, _ = self.energies(coordinates)
        energy = molecular.sum()
        return Waters(coordinates, molecular, energy, energy)

    def relaxed(self, coordinates: Array, before: Waters) -> Waters:
        """The nearest minimum, centred; ``before`` when no valid one is found."""
        xp = self.xp

        def energy(at: Array) -> tuple[Array, Array]:
            molecular, gradient = self.energies(at)
            return molecular.sum(), gradient

        found = minimise(xp, energy, coordinates, tolerance=self.tolerance)
        places, quaternions = unpack(found.x)
        now = self.measured(pack(xp, places - places.mean(0), STIFFNESS * _unit(xp, quaternions)))
        # In single precision a search may get stuck where two molecules repel each other.
        valid = (now.energy < 0) & (now.energy > FUSED * self.n)
        now = now._replace(lowest=xp.minimum(now.energy, before.lowest))
        return Waters(*(xp.where(valid, new, old) for new, old in zip(now, before, strict=True)))


def load_potential(name: str) -> Potential:
    """TIP4P, or the potential 'module:function' (see ``tip4p``); ValueError when it does not exist."""
    if name == "tip4p":
        return tip4p
    module, _, function = name.partition(":")
    try:
        if not function:
            raise ValueError("no function is named")
        return cast("Potential", getattr(import_named(module), function))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"potential must be tip4p or module:function, not '{name}' ({error})"
        ) from error


def _length(xp: Namespace, vectors: Array) -> Array:
    return xp.sqrt((vectors * vectors).sum(-1))


def _unit(xp: Namespace, vectors: Array) -> Array:
    """``vectors`` [..., k] of length 1; 0 stays 0."""
    return vectors / xp.maximum(_length(xp, vectors), 1e-12)[..., None]


def _distances(xp: Namespace, sites: Array, others: Array | None = None) -> Array:
    """[m, 3] and [k, 3] (the same where not given) -> [m, k]."""
    return _length(xp, sites[:, None] - (sites if others is None else others)[None])
