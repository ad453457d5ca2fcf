"""Search-v0: a constant, a PID controller or a linear policy, found by trying episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from exarl.agents.base import ExaAgent, MakeNetwork
from exarl.config import LearnerConfig, param
from exarl.errors import CheckpointError, ConfigError
from exarl.learning.distributions import among
from exarl.learning.exploration import Streams
from exarl.learning.normalise import CLIP, Moments, sums_around, with_sums
from exarl.learning.search import Search, Tried, search_by
from exarl.types import Arrays, ArraySpec, Block, EnvSpec, Metrics

_MOST = 10_000
"""Numbers that can be searched: the covariances of more would not fit."""


@dataclass(frozen=True)
class SearchConfig:
    """Parameters of Search-v0."""

    form: Literal["constant", "pid", "linear"] = param(
        "linear", "what is searched: one action, gains of a PID controller, or a linear policy"
    )
    method: Literal["cma-es", "bayes"] = param("cma-es", "how: CMA-ES, or TPE (Bayesian)")
    sigma: float = param(0.5, "how far apart the first points are", gt=0)
    generation: int | None = param(
        None, "episodes between two proposals; null: as the method likes", ge=4, le=100_000
    )
    pid_input: int = param(0, "form pid: which number of the observation is controlled", ge=0)
    pid_setpoint: float = param(0.0, "form pid: the value that it should have")


class SearchAgent(ExaAgent):
    """Each episode of training tries a point, which the agent draws when it begins from those that the
    learner proposes; a generation of returns makes the learner propose others. Evaluation acts with the
    best point so far. Observations are divided by their deviations in the first generation.
    """

    Config = SearchConfig
    action_kind = "any"
    respects_masks = True
    metrics = ("generation_return", "generations")

    def __init__(
        self, spec: EnvSpec, config: SearchConfig, network: MakeNetwork, seed: int
    ) -> None:
        super().__init__(spec, config, network, seed)
        self._inputs = int(np.prod(spec.observation.shape))
        self._outputs = spec.n_actions or spec.numbers
        if spec.choices:
            raise ConfigError("Search-v0 does not choose several actions at once (MultiDiscrete)")
        if config.form == "pid" and config.pid_input >= self._inputs:
            raise ConfigError(
                f"pid_input={config.pid_input}, but observations have {self._inputs} numbers"
            )
        if config.form == "pid" and spec.n_actions:
            self._outputs = 1
        columns = {"constant": 1, "pid": 4, "linear": 1 + self._inputs}[config.form]
        self.size = columns * self._outputs
        if self.size > _MOST:
            raise ConfigError(f"{self.size} numbers are too many to search: at most {_MOST}")
        bounds = [*spec.action_low, *spec.action_high]
        self._bounded = bool(np.isfinite(bounds).all())
        self.memory = {
            "point": ArraySpec((self.size,), "float32"),
            "pid": ArraySpec((3,), "float32"),
        }
        self.recorded = {"point": ArraySpec((self.size,), "float32")}
        self._moments = Moments.none((self._inputs,))
        self._scale = np.stack([np.zeros(self._inputs), np.ones(self._inputs)]).astype(np.float32)
        self._best = np.zeros(self.size, np.float32)
        self._pool = np.zeros((1, self.size), np.float32)
        self._tried: list[Tried] = []
        self._waiting: list[tuple[np.ndarray, float]] = []
        self._search_seed = seed
        self._search: Search | None = None  # on the learner

    @classmethod
    def check(cls, config: Any, run: LearnerConfig, *, learners: int, lags: bool) -> None:
        if run.workflow == "rma":  # whose memory is laid out before there are points to propose
            raise ConfigError("Search-v0 cannot be used in workflow 'rma': use async")
        super().check(config, run, learners=learners, lags=lags)

    # -- acting -------------------------------------------------------------------------------------

    def action(
        self,
        observations: np.ndarray,
        rng: Streams | None = None,
        memory: Arrays | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        rows = len(observations)
        memory = memory or {name: spec.zeros(rows) for name, spec in self.memory.items()}
        point, state = memory["point"], memory["pid"]
        fresh = state[:, 2] == 0  # an episode begins
        if rng is None:
            point[...] = self._best
        else:
            drawn = (rng.uniform(1)[:, 0] * len(self._pool)).astype(int)
            point[fresh] = self._pool[drawn[fresh]]
        mean, std = self._scale
        seen = observations.reshape(rows, -1).astype(np.float32)
        outputs = self._outputs_of(point, (seen - mean) / std, seen, state)
        state[:, 2] = 1
        return self._actions(outputs, observations), {"point": point.copy()}

    def _outputs_of(
        self, point: np.ndarray, scaled: np.ndarray, seen: np.ndarray, state: np.ndarray
    ) -> np.ndarray:
        """What the points [B, size] give, [B, outputs]; ``state``: integral, last error, begun."""
        weights = point.reshape(len(point), self._outputs, -1)
        if self.config.form == "constant":
            return weights[:, :, 0]
        inputs = scaled.clip(-CLIP, CLIP)
        if self.config.form == "pid":
            which = self.config.pid_input
            error = (self.config.pid_setpoint - seen[:, which]) / self._scale[1, which]
            change = np.where(state[:, 2] > 0, error - state[:, 1], 0.0)
            state[:, 0] = (state[:, 0] + error).clip(-1000, 1000)
            state[:, 1] = error
            inputs = np.stack([error, state[:, 0], change], 1)
        outputs: np.ndarray = weights[:, :, 0] + np.einsum("boi,bi->bo", weights[:, :, 1:], inputs)
        return outputs

    def _actions(self, outputs: np.ndarray, observations: np.ndarray) -> np.ndarray:
        spec, rows = self.spec, len(observations)
        if spec.n_actions is None:
            bounded = outputs.clip(-1, 1) if self._bounded else outputs
            return bounded.reshape(rows, *spec.action.shape).astype(spec.action.dtype)
        if self.config.form == "pid":  # the action at that place between the first and the last
            wanted = (outputs.clip(-1, 1) + 1) / 2 * (spec.n_actions - 1)
            outputs = -np.abs(np.arange(spec.n_actions) - wanted)
        allowed = spec.allowed(observations)
        chosen = among(np, outputs, allowed, ()).argmax(-1)
        return np.asarray(chosen, spec.action.dtype)

    def set_weights(self, weights: np.ndarray) -> None:
        fixed = 2 * self._inputs + self.size
        if len(weights) <= fixed or (len(weights) - fixed) % self.size:
            raise ValueError(f"{len(weights)} numbers are no weights of this agent")
        parts = np.split(weights.astype(np.float32), [2 * self._inputs, fixed])
        self._scale = parts[0].reshape(2, self._inputs)
        self._best, self._pool = parts[1], parts[2].reshape(-1, self.size)

    def controller(self) -> dict[str, Any]:
        """The best controller in plain numbers: actions are ``bias + gains @ inputs``, cut off at
        -1 and 1 and scaled to the bounds of the space; of a list of actions the largest is taken."""
        form, weights = self.config.form, self._best.reshape(self._outputs, -1)
        inputs = {
            "constant": "none",
            "pid": f"error, its sum and its change; error = ({self.config.pid_setpoint} -"
            f" observation[{self.config.pid_input}]) / deviation",
            "linear": f"(observation - mean) / deviation, cut off at +-{CLIP:g}",
        }[form]
        return {
            "form": form,
            "inputs": inputs,
            "bias": weights[:, 0].tolist(),
            "gains": weights[:, 1:].tolist(),
            "mean": self._scale[0].tolist(),
            "deviation": self._scale[1].tolist(),
            "env": self.spec.env_id,
        }

    # -- learning -----------------------------------------------------------------------------------

    def set_learner(self) -> None:
        cfg = self.config
        self._search = search_by(
            cfg.method, self.size, cfg.sigma, self._search_seed, cfg.generation, self._tried
        )
        self._propose()

    def train(self, block: Block) -> Metrics:
        search = self._searching()
        if not self._tried:
            rows = block.observations[:-1].reshape(-1, self._inputs)
            self._moments = with_sums(self._moments, sums_around(self._moments, rows))
        points = block.recorded["point"].swapaxes(0, 1)[block.ended.T]
        returns = block.episode_returns.tolist()
        self._waiting += [(p.copy(), r) for p, r in zip(points, returns, strict=True)]
        size, made, told = search.generation, 0, {}
        while len(self._waiting) >= size:
            tried = _as_tried(self._waiting[:size], self.size)
            self._waiting = self._waiting[size:]
            self._tell(tried)
            made, told = made + 1, {"generation_return": float(tried.values.mean())}
        return {"updates": made, "generations": len(self._tried), **told}

    def _tell(self, tried: Tried) -> None:
        if not self._tried:
            self._scale = np.stack([self._moments.mean, self._moments.std]).astype(np.float32)
        self._tried.append(tried)
        self._searching().tell(tried)
        self._propose()

    def _propose(self) -> None:
        search = self._searching()
        self._best = np.asarray(search.best, np.float32)
        self._pool = np.asarray(search.propose(), np.float32)

    def _searching(self) -> Search:
        assert self._search is not None, "set_learner comes first"
        return self._search

    def get_weights(self) -> np.ndarray:
        return np.concatenate([self._scale.ravel(), self._best, self._pool.ravel()])

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays = {"weights": self.get_weights(), "seen/count": np.array(self._moments.count)}
        arrays["seen/mean"] = np.asarray(self._moments.mean)
        arrays["seen/squares"] = np.asarray(self._moments.squares)
        waiting = [_as_tried(self._waiting, self.size)]
        for name, tried in (("tried", self._tried), ("waiting", waiting)):
            arrays[f"{name}/points"] = np.concatenate(
                [np.zeros((0, self.size), np.float32), *(each.points for each in tried)]
            )
            arrays[f"{name}/values"] = np.concatenate([np.zeros(0), *(e.values for e in tried)])
        return arrays, {"seed": self._search_seed}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        size = self._searching().generation
        points, values = arrays["tried/points"], arrays["tried/values"]
        if points.shape[1:] != (self.size,) or len(points) % size:
            raise CheckpointError("the generations in the checkpoint are of another size")
        spans = [slice(at, at + size) for at in range(0, len(points), size)]
        self._tried = [Tried(points[span], values[span]) for span in spans]
        waiting = zip(arrays["waiting/points"], arrays["waiting/values"].tolist(), strict=True)
        self._waiting = [(point, value) for point, value in waiting]
        self._moments = Moments(
            float(arrays["seen/count"]), arrays["seen/mean"], arrays["seen/squares"]
        )
        self._search_seed = int(numbers["seed"])
        self.set_learner()
        self.set_weights(arrays["weights"])


def _as_tried(found: Sequence[tuple[np.ndarray, float]], size: int) -> Tried:
    points = np.array([point for point, _ in found], np.float32).reshape(-1, size)
    return Tried(points, np.array([value for _, value in found], float))
