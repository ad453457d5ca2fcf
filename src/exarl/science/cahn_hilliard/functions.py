"""Self-assembly under a controlled temperature (or kappa) as an environment of pure functions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from exarl.envs.functional import Functions, number
from exarl.science.cahn_hilliard.model import Model
from exarl.science.cahn_hilliard.structure import ORDER, Structure
from exarl.science.cahn_hilliard.task import Start, Target
from exarl.types import Action, Array, Namespace, Rng


class Morphology(NamedTuple):
    """The field, the control, the measured structure; ``path`` is the control so far, for pictures."""

    field: Array
    control: Array
    step: Array
    path: Array
    spectrum: Array
    order: Array
    contrast: Array


class Recipe(NamedTuple):
    """The control: its name, first value and change per step; steps of an episode; tolerance."""

    name: str
    first: float
    change: float
    continuous: bool
    steps: int
    tolerance: float


class Assembly(Functions):
    """One morphology, driven step by step towards a target.

    Action: lower, keep or raise the control (0, 1, 2), or its change in units of the largest one.
    Observation: spectrum, order, contrast, control from 0 to 1, time from 0 to 1. Reward: minus the
    distance to the target. The episode ends when the target is reached.
    """

    costly_reset = True

    def __init__(
        self, model: Model, start: Start, target: Target, recipe: Recipe, xp: Namespace = np
    ) -> None:
        super().__init__(xp)
        if not model.low <= recipe.first <= model.high:
            raise ValueError(
                f"initial_{recipe.name} must lie between {model.low} and {model.high}, "
                f"not {recipe.first}"
            )
        if not recipe.change > 0:
            raise ValueError(f"{recipe.name}_step must be positive, not {recipe.change}")
        self.model, self.start, self.target, self.recipe = model, start, target, recipe
        self.idle: np.ndarray | int = np.zeros(1, np.float32) if recipe.continuous else 1
        """The action that keeps the control unchanged."""
        self._names = ORDER[len(model.shape)]
        size = model.shells + len(self._names) + 3
        self.observation_space = spaces.Box(0, np.inf, (size,), np.float32)
        self.action_space = (
            spaces.Box(-1, 1, (1,), np.float32) if recipe.continuous else spaces.Discrete(3)
        )

    def initial(self, rng: Rng, params: None = None) -> Morphology:
        xp, recipe, model = self.xp, self.recipe, self.model
        field = self.start.field(xp, model, rng)
        control = xp.asarray(recipe.first, field.dtype)
        path = xp.full(recipe.steps + 1, recipe.first, field.dtype)
        return Morphology(
            field, control, xp.asarray(0, np.int32), path, *model.structure(xp, field)
        )

    def transition(
        self, state: Morphology, action: Action, rng: Rng, params: None = None
    ) -> Morphology:
        xp, recipe, model = self.xp, self.recipe, self.model
        push = xp.clip(xp.asarray(action).reshape(()), -1, 1) if recipe.continuous else action - 1
        control = state.control + xp.asarray(push * recipe.change, state.control.dtype)
        control = xp.clip(control, model.low, model.high).astype(state.control.dtype)
        field = model.advance(xp, state.field, control)
        step = state.step + xp.asarray(1, np.int32)
        path = xp.where(xp.arange(recipe.steps + 1) >= step, control, state.path)
        return Morphology(field, control, step, path, *model.structure(xp, field))

    def observation(self, state: Morphology, rng: Rng, params: None = None) -> Array:
        xp, model = self.xp, self.model
        level = (state.control - model.low) / (model.high - model.low)
        time = xp.minimum(state.step / self.recipe.steps, 1.0)
        rest = xp.stack([state.contrast, level, time])
        seen = xp.concatenate([state.spectrum, state.order, rest])
        return xp.maximum(seen, 0.0).astype(np.float32)

    def reward(
        self,
        state: Morphology,
        action: Action,
        next_state: Morphology,
        rng: Rng,
        params: None = None,
    ) -> Array:
        return -self.target.distance(self.xp, _structure(next_state))

    def terminal(self, state: Morphology, rng: Rng, params: None = None) -> Array:
        return self.target.reached(self.xp, _structure(state), self.recipe.tolerance)

    def state_info(self, state: Morphology, params: None = None) -> dict[str, object]:
        """The control, the energy, the contrast, the order and the distance, as floats."""
        return {
            self.recipe.name: number(self.xp, state.control),
            "energy": number(self.xp, self.model.energy(self.xp, state.field, state.control)),
            "distance": number(self.xp, self.target.distance(self.xp, _structure(state))),
            "contrast": number(self.xp, state.contrast),
            **dict(zip(self._names, (number(self.xp, part) for part in state.order), strict=True)),
        }

    def picture(self, state: Morphology) -> np.ndarray:
        """The field, its spectrum beside the target's, and the control's path."""
        from exarl.science.cahn_hilliard.picture import draw

        reached = min(int(state.step), self.recipe.steps)
        return draw(
            np.asarray(state.field),
            np.asarray(state.spectrum),
            self.target.spectrum,
            np.asarray(state.path)[: reached + 1],
            (self.model.low, self.model.high),
            self.recipe,
        )


def _structure(state: Morphology) -> Structure:
    return Structure(state.spectrum, state.order, state.contrast)
