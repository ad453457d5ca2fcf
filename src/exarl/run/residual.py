"""The controller that a policy corrects (``residual``), as a configuration names it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from exarl import registry
from exarl.config import Configuration, LearnerConfig
from exarl.envs.base import Env, Space
from exarl.envs.guard import close_quietly
from exarl.envs.joint import joint_of
from exarl.envs.residual import Controlled, Correction, Residual, controlled
from exarl.errors import ConfigError


def controller_named(text: str) -> Any:
    """What ``module:name`` is; ConfigError where there is no such thing."""
    module, _, attribute = text.partition(":")
    try:
        return getattr(registry.import_named(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(f"controller '{text}' cannot be imported: {error}") from error


def with_controller(learner: LearnerConfig, env: Env) -> Env:
    """``env`` under the controller of the run, if it has one; what cannot be is closed."""
    if learner.residual is None:
        return env
    try:
        if joint_of(env) is not None:
            raise ConfigError(
                f"residual cannot be used with '{learner.env}', which has several agents"
            )
        source = controller_named(learner.residual)
        return Residual(env, source, learner.residual_scale, learner.residual_observes)
    except ConfigError:
        close_quietly(env)
        raise


def without_controller(configuration: Configuration) -> Configuration:
    """The configuration of the bare environment."""
    bare = dataclasses.replace(configuration.learner, residual=None)
    return dataclasses.replace(configuration, learner=bare)


class ResidualPolicy:
    """The controllers of a batch of environments, whose actions a trained policy corrects."""

    def __init__(self, learner: LearnerConfig, spaces: tuple[Space, Space]) -> None:
        assert learner.residual is not None
        self._source = controller_named(learner.residual)
        scale, observes = learner.residual_scale, learner.residual_observes
        self._correction = Correction.of(*spaces, scale, observes)
        self.spaces = self._correction.spaces(spaces[0])
        self._kind = spaces[1].dtype
        self._rows: list[Controlled] = []

    @classmethod
    def of(cls, configuration: Configuration, spaces: tuple[Space, Space]) -> ResidualPolicy | None:
        """That of a run; None if it has no controller."""
        learner = configuration.learner
        return cls(learner, spaces) if learner.residual is not None else None

    def begin(self, rows: int | None = None) -> None:
        """Episodes begin: in all environments, or in that of one row."""
        if rows is None:
            self._rows = []
        elif rows < len(self._rows):
            self._rows[rows].reset()

    def bases(self, observations: list[Any]) -> list[np.ndarray]:
        """The controllers' actions, one for each observation."""
        while len(self._rows) < len(observations):
            self._rows.append(controlled(self._source, None, self._correction.low.shape))
            self._rows[-1].reset()
        return [row.act(seen) for row, seen in zip(self._rows, observations, strict=False)]

    def seen(self, observation: Any, base: np.ndarray) -> Any:
        """What the policy sees."""
        return self._correction.seen(observation, base)

    def action(self, base: np.ndarray, chosen: Any) -> np.ndarray:
        """The action in the units of the environment."""
        return self._correction.action(base, chosen).astype(self._kind)
