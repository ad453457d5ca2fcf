"""The Gymnasium forms: ExaCH-v0 (a film from above, temperature) and ExaCH3D-v0 (a slab, kappa)."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from exarl.envs.functional import FunctionalEnv
from exarl.science.cahn_hilliard.functions import Assembly, Recipe
from exarl.science.cahn_hilliard.kernel import Coefficients, Polymer, polymer_coefficients
from exarl.science.cahn_hilliard.model import Model
from exarl.science.cahn_hilliard.task import Start, control_path, make_target, read_field

PERIOD = 0.1
"""Period of the guide's stripes in units of 750 nm; close to that of lamellae in equilibrium."""


class ExaCH(FunctionalEnv):
    """Temperature control of a block copolymer that separates into lamellae (Cahn-Hilliard-Oono).

    ``initial``: "random" or a field (array, .npy, text). ``target``: "vertical", "horizontal",
    "isotropic", "generated" (by ``target_path``), a field, or a published structure file (.out).
    ``control``: three actions, or the change of temperature as a number. ``box`` and ``kuhn_length``
    are in nm; times are in units in which 750 nm is 1. For more see docs/envs/cahn_hilliard.md.
    """

    def __init__(
        self,
        grid: int = 64,
        box: float = 300.0,
        boundary: Literal["periodic", "neumann"] = "periodic",
        initial: Any = "random",
        noise: float = 0.02,
        guide: float = 0.005,
        target: Any = "vertical",
        target_path: tuple[float, ...] = (0.7, 0.7, 0.3, 0.3),
        control: Literal["discrete", "continuous"] = "discrete",
        initial_temperature: float = 0.5,
        lowest_temperature: float = 0.2,
        temperature_step: float = 0.1,
        step_time: float = 1e-3,
        dt: float = 2e-5,
        episode_steps: int = 30,
        tolerance: float = 0.05,
        shells: int = 32,
        mean: float = 0.15,
        chain_length: float = 1100.0,
        kuhn_length: float = 1.75,
        precision: Literal["float32", "float64"] = "float32",
        render_mode: str | None = None,
    ) -> None:
        _at_least(0, noise=noise, guide=guide, tolerance=tolerance)
        _at_least(1, episode_steps=episode_steps)
        if not 0 < lowest_temperature < 1:
            raise ValueError(
                f"lowest_temperature must lie between 0 and 1, not {lowest_temperature}"
            )
        polymer = Polymer(chain=chain_length, kuhn=kuhn_length, mean=mean)
        edge = box / polymer.unit
        model = Model(
            shape=(grid, grid),
            lengths=(edge, edge),
            mean=mean,
            low=lowest_temperature,
            high=polymer.t_max,
            material=partial(polymer_coefficients, polymer),
            step_time=step_time,
            dt=dt,
            shells=shells,
            walls=boundary == "neumann",
            dtype=precision,
        )
        start = Start(
            noise,
            guide,
            stripes=max(1, round(edge / PERIOD)),
            axis=0 if isinstance(target, str) and target == "horizontal" else -1,
            base=_base(initial, model),
        )
        goal = make_target(target, model, start, control_path(target_path, episode_steps, model))
        recipe = Recipe(
            "temperature",
            initial_temperature,
            temperature_step,
            control == "continuous",
            episode_steps,
            tolerance,
        )
        super().__init__(partial(Assembly, model, start, goal, recipe), render_mode)


class ExaCH3D(FunctionalEnv):
    """Control of kappa in a slab that separates into cylinders (time-dependent Landau-Ginzburg).

    ``grid`` points along x and y, ``layers`` along z, ``spacing`` apart; ``sigma`` is Oono's
    coefficient. The other parameters are those of ExaCH, in the units of this model.
    """

    def __init__(
        self,
        grid: int = 32,
        layers: int = 8,
        spacing: float = 0.15,
        initial: Any = "random",
        noise: float = 0.05,
        target: Any = "vertical",
        target_path: tuple[float, ...] = (0.012, 0.012, 0.004, 0.004),
        control: Literal["discrete", "continuous"] = "discrete",
        initial_kappa: float = 0.008,
        kappa_step: float = 0.001,
        step_time: float = 0.2,
        dt: float = 4e-3,
        episode_steps: int = 30,
        tolerance: float = 0.05,
        shells: int = 16,
        mean: float = 0.25,
        sigma: float = 1.0,
        precision: Literal["float32", "float64"] = "float32",
        render_mode: str | None = None,
    ) -> None:
        _at_least(0, noise=noise, sigma=sigma, tolerance=tolerance)
        _at_least(1, episode_steps=episode_steps)
        shape = (layers, grid, grid)
        model = Model(
            shape=shape,
            lengths=tuple(n * spacing for n in shape),
            mean=mean,
            low=0.004,
            high=0.012,
            material=partial(Coefficients, sigma=sigma),
            step_time=step_time,
            dt=dt,
            shells=shells,
            dtype=precision,
        )
        start = Start(noise, base=_base(initial, model))
        goal = make_target(target, model, start, control_path(target_path, episode_steps, model))
        recipe = Recipe(
            "kappa", initial_kappa, kappa_step, control == "continuous", episode_steps, tolerance
        )
        super().__init__(partial(Assembly, model, start, goal, recipe), render_mode)


def _base(initial: ArrayLike, model: Model) -> np.ndarray | None:
    if isinstance(initial, str) and initial == "random":
        return None
    return read_field(initial, model, "initial")


def _at_least(least: int, **values: float) -> None:
    for name, value in values.items():
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}, not {value}")
