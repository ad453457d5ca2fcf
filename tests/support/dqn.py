"""Deep Q-learning written again, by hand and in double precision: the oracle of the DQN tests.

One hidden layer of rectified units; parameters are named as the MLP names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exarl.types import Arrays, Block
from support.learning import discrete_spec, make_agent, random_block

SPEC = discrete_spec((3,), 4)
SMALL = {"batch_size": 6, "learning_starts": 0, "updates_per_step": 0.25, "epsilon": 0.5}
PLAIN = {
    **SMALL,
    "double": False,
    "loss": "mse",
    "optimizer": "sgd",
    "learning_rate": 0.05,
    "tau": 0.1,
    "max_grad_norm": None,
}

Params = dict[str, np.ndarray]


def q_values(params: Params, observations: np.ndarray, dueling: bool) -> np.ndarray:
    hidden = np.maximum(observations @ params["0/w"] + params["0/b"], 0)
    outputs = hidden @ params["1/w"] + params["1/b"]
    if not dueling:
        return outputs
    advantages = outputs[:, 1:]
    return outputs[:, :1] + advantages - advantages.mean(1, keepdims=True)


def targets(
    params: Params, target: Params, batch: Mapping[str, np.ndarray], *, double: bool, dueling: bool
) -> np.ndarray:
    rated = q_values(target, batch["next_observation"], dueling)
    judge = q_values(params, batch["next_observation"], dueling) if double else rated
    best = rated[np.arange(len(rated)), judge.argmax(1)]
    return batch["reward"] + batch["discount"] * best


def gradient(
    params: Params, batch: Mapping[str, np.ndarray], goal: np.ndarray, *, loss: str, dueling: bool
) -> Params:
    """Of the mean loss, by the chain rule."""
    x, actions, count = batch["observation"], batch["action"], len(goal)
    before = x @ params["0/w"] + params["0/b"]
    hidden = np.maximum(before, 0)
    q = q_values(params, x, dueling)
    errors = goal - q[np.arange(count), actions]
    slope = np.clip(errors, -1, 1) if loss == "huber" else errors
    d_out = np.zeros_like(q)
    d_out[np.arange(count), actions] = -slope / count
    if dueling:
        value = d_out.sum(1, keepdims=True)
        d_out = np.concatenate([value, d_out - d_out.mean(1, keepdims=True)], 1)
    d_before = (d_out @ params["1/w"].T) * (before > 0)
    return {
        "0/w": x.T @ d_before,
        "0/b": d_before.sum(0),
        "1/w": hidden.T @ d_out,
        "1/b": d_out.sum(0),
    }


def clipped(grad: Params, limit: float | None) -> Params:
    norm = np.sqrt(sum((g**2).sum() for g in grad.values()))
    scale = 1.0 if limit is None or norm <= limit else limit / norm
    return {name: g * scale for name, g in grad.items()}


class Reference:
    """A learner that updates one minibatch at a time."""

    def __init__(self, params: Params, config: Any) -> None:
        self.params = {name: array.astype(float) for name, array in params.items()}
        self.target = dict(self.params)
        self._config = config
        self._updates = 0
        self._first = {name: np.zeros_like(p) for name, p in self.params.items()}
        self._second = dict(self._first)

    def update(self, batch: Mapping[str, np.ndarray]) -> None:
        cfg = self._config
        double, dueling = cfg.double, cfg.dueling
        goal = targets(self.params, self.target, batch, double=double, dueling=dueling)
        grad = gradient(self.params, batch, goal, loss=cfg.loss, dueling=dueling)
        grad = clipped(grad, cfg.max_grad_norm)
        self._updates += 1
        step = self._adam(grad) if cfg.optimizer == "adam" else grad
        rate = self._rate()
        self.params = {name: p - rate * step[name] for name, p in self.params.items()}
        if cfg.tau:
            keep = 1 - cfg.tau
            self.target = {
                name: keep * self.target[name] + (1 - keep) * p for name, p in self.params.items()
            }
        elif self._updates % cfg.target_update_interval == 0:
            self.target = dict(self.params)

    def _rate(self) -> float:
        cfg, before = self._config, self._updates - 1
        if not cfg.learning_rate_updates:
            return float(cfg.learning_rate)
        part = min(1.0, before / cfg.learning_rate_updates)
        return float((1 - part) * cfg.learning_rate + part * cfg.learning_rate_end)

    def _adam(self, grad: Params) -> Params:
        """Kingma and Ba (arXiv 1412.6980), with its usual constants."""
        count = self._updates
        self._first = {n: 0.9 * self._first[n] + 0.1 * g for n, g in grad.items()}
        self._second = {n: 0.999 * self._second[n] + 0.001 * g**2 for n, g in grad.items()}
        return {
            n: (self._first[n] / (1 - 0.9**count))
            / (np.sqrt(self._second[n] / (1 - 0.999**count)) + 1e-8)
            for n in grad
        }


def learner(seed: int = 0, **parameters: Any) -> Any:
    return make_agent(SPEC, seed=seed, learner=True, **parameters)


def blocks(count: int, first: int = 0) -> list[Block]:
    return [random_block(SPEC, seed, scale=3.0) for seed in range(first, first + count)]


def unpacked(agent: Any, weights: np.ndarray | None = None) -> Arrays:
    """The network's parameters by name, without epsilon."""
    named = agent._layout.unpack(agent.get_weights() if weights is None else weights)
    return {name: named[f"q/{name}"] for name in ("0/w", "0/b", "1/w", "1/b")}


def learned(agent: Any, part: str) -> Arrays:
    """What a learner holds, likewise."""
    return {
        n.removeprefix("q/"): np.asarray(a) for n, a in getattr(agent.train_state, part).items()
    }


def named(params: Mapping[str, np.ndarray]) -> Arrays:
    """Such parameters as the agent names them."""
    return {f"q/{name}": array for name, array in params.items()}
