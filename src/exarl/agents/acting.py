"""The acting half that the learning agents share: networks over arrays, in NumPy or on a device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from exarl.agents.base import ExaAgent, Network
from exarl.export.policy import Affine, ArgMax, Normalise, Policy, Squash, ToBox
from exarl.learning.exploration import Streams
from exarl.learning.normalise import CLIP, normalised
from exarl.networks import ParamLayout
from exarl.types import Arrays, ArraySpec

Acting = dict[str, dict[str, Any]]
"""What acting needs: arrays by network, see ``Acts.by_part``."""


class Acts(ExaAgent):
    """Acts by the networks named in ``acts_with``; ``self.acting`` holds what it acts with."""

    acts_with: tuple[str, ...] = ("policy",)
    networks: dict[str, Network]
    _layout: ParamLayout
    _recalls: bool
    _forward: Any = None  # the networks on the device, where they act there

    def set_weights(self, weights: np.ndarray) -> None:
        self._weights = weights
        self.take_acting(self.by_part(self._layout.unpack(weights)))

    def take_acting(self, acting: Acting) -> None:
        """Act from now on with these arrays."""
        acting["now"] = {name: float(value) for name, value in acting["now"].items()}
        self.acting = acting if self._forward is None else self._forward.placed(acting)

    def act_on_device(self, width: int, always: bool = False) -> bool:
        from exarl.agents import compiled

        if always or compiled.accelerated():
            self._forward = compiled.Forward(self.forward, self.acts_with, width)
            self.take_acting(self.acting)
        return self._forward is not None

    def by_part(self, arrays: Mapping[str, Any]) -> Acting:
        """Flat names by the network they belong to; "" has those that belong to none, "norm" and
        "now" the normalisers and the schedules."""
        parts: Acting = {part: {} for part in (*self.acts_with, "", "norm", "now")}
        for name, array in arrays.items():
            part, _, inner = name.partition("/")
            if part in parts and inner:
                parts[part][inner] = array
            else:
                parts[""][name] = array
        return parts

    @abstractmethod
    def act(
        self, xp: Any, acting: Acting, observations: Any, rng: Any, memory: Any
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Actions [B], what is recorded with them, and the memory after them; a pure function.

        ``rng`` gives ``uniform(n)`` and ``normal(n)``, [B, n]; None: the greedy policy.
        """

    def action(
        self,
        observations: np.ndarray,
        rng: Streams | None = None,
        memory: Arrays | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        actions, recorded, after = self.act(np, self.acting, observations, rng, memory)
        for name, array in after.items():
            memory[name][...] = array  # type: ignore[index]  # who has memory is given one
        return actions, recorded

    def normal(self, xp: Any, acting: Acting, observations: Any) -> Any:
        """Observations as the networks see them."""
        if not self.config.normalize_observations:
            return observations
        norm = acting["norm"]
        return normalised(xp, observations, norm["mean"], norm["std"]).astype(np.float32)

    def outputs(
        self, xp: Any, acting: Acting, part: str, observations: Any, memory: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """The outputs of an acting network [B, ...], and its memory after them."""
        if self._forward is not None and xp is np:
            return self._forward(acting, part, observations, memory)  # type: ignore[no-any-return]
        return self.forward(xp, acting, part, observations, memory)

    def forward(
        self, xp: Any, acting: Acting, part: str, observations: Any, memory: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The same as a pure function."""
        network, params = self.networks[part], acting[part]
        if self.config.normalize_observations:
            observations = self.normal(xp, acting, observations)
        if not self._recalls:
            return network.apply(xp, params, observations), {}
        outputs, after = network.step(xp, params, observations, memory)
        return outputs, {name: after[name] for name in memory_of(network)}

    greedy = slice(None)
    """Which outputs of the acting network make the greedy action."""
    squashed = False
    """Whether they pass through tanh."""

    def exported(self) -> Policy:
        """The greedy policy for other programs; ValueError when the network cannot be exported."""
        network = self.networks[self.acts_with[0]]
        if not hasattr(network, "exported"):
            raise ValueError(f"{type(network).__name__} has no exported()")
        *body, last = network.exported(self.acting[self.acts_with[0]])
        head = [Affine(last.weight[:, self.greedy], last.bias[self.greedy])]
        norm, spec = self.acting["norm"], self.spec
        seen = [Normalise(norm["mean"].ravel(), norm["std"].ravel(), CLIP)] if norm else []
        if spec.n_actions is not None:
            end: list[Any] = [ArgMax()]
        else:
            low, high = np.array(spec.action_low), np.array(spec.action_high)
            bounded = np.isfinite(low).all() and np.isfinite(high).all()
            end = [Squash()] * self.squashed + [ToBox(low, high)] * bool(bounded)
        size = 1 if spec.n_actions is not None else int(np.prod(spec.action.shape))
        inputs = int(np.prod(spec.observation.shape))
        return Policy((*seen, *body, *head, *end), inputs, size)


def memory_of(network: Network) -> dict[str, ArraySpec]:
    """What a network remembers between steps; a user's own may say nothing of it."""
    return dict(getattr(network, "memory", {}))
