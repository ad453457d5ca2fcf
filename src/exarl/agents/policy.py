"""The acting half of an agent: networks over arrays, in NumPy or on a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from exarl.agents.algorithm import (
    Acting,
    Algorithm,
    AlgorithmConfig,
    Hyper,
    TrainState,
    memory_of,
)
from exarl.agents.blocks import on_host
from exarl.agents.running import check_batches
from exarl.errors import ConfigError
from exarl.export.policy import (
    Affine,
    ArgMax,
    ArgMaxEach,
    Layer,
    Mask,
    Mixed,
    Normalise,
    Policy,
    Round,
    Squash,
    ToBox,
    evaluate,
)
from exarl.learning.distributions import among
from exarl.learning.exploration import Streams
from exarl.learning.normalise import CLIP, normalised
from exarl.networks import ParamLayout
from exarl.networks.network import Network
from exarl.types import Array, Arrays, ArraySpec, Block, EnvSpec, Memory, Namespace

if TYPE_CHECKING:
    from exarl.agents.compiled import DeviceForward

LARGEST = float(np.finfo(np.float32).max)
"""In place of a bound that is infinite."""

Parts = dict[str, dict[str, Array]]
"""What acting needs, by network; see ``by_part``."""


class NetworkPolicy:
    """Acts by the networks that the algorithm names, with the weights last given."""

    def __init__(
        self, algorithm: Algorithm[AlgorithmConfig], hyper: Hyper, layout: ParamLayout
    ) -> None:
        self._algorithm, self._hyper, self._layout = algorithm, hyper, layout
        self._device: DeviceForward | None = None
        self._forward = partial(forward, algorithm.networks, bool(recalled(algorithm)))
        self.weights = np.zeros(0, np.float32)
        self.parts: Parts = {}

    def set_weights(self, weights: np.ndarray) -> None:
        """Act from now on with this flat vector."""
        parts = by_part(self._algorithm.acts_with, self._layout.unpack(weights))
        self.weights = weights
        self.adopt(parts)

    def adopt(self, parts: Parts) -> None:
        """Act from now on with these arrays."""
        parts = {**parts, "now": {n: float(value) for n, value in parts["now"].items()}}  # type: ignore[misc]
        self.parts = parts if self._device is None else self._device.placed(parts)
        run = partial(self._forward, np) if self._device is None else self._device
        self.acting = acting_with(np, partial(run, self.parts), self.parts)

    def place_on_device(self, width: int, always: bool) -> bool:
        """Act by networks on JAX's device, ``width`` rows at a time, unless it is a CPU (or
        ``always``). Whether it does."""
        from exarl.agents.compiled import DeviceForward, accelerated

        if always or accelerated():
            self._device = DeviceForward(self._forward, self._algorithm.acts_with, width)
            self.adopt(self.parts)
        return self._device is not None

    def action(
        self, observations: np.ndarray, rng: Streams | None, memory: Arrays | None
    ) -> tuple[np.ndarray, Arrays]:
        """Actions, and what is recorded with them; ``memory`` is changed in place."""
        actions, recorded, after = self._algorithm.act(
            np, self._hyper, self.acting, observations, rng, memory
        )
        for name, array in after.items():
            memory[name][...] = array  # type: ignore[index]  # an agent with memory is given one
        return actions, recorded  # type: ignore[return-value]  # NumPy in, NumPy out

    def exported(self) -> Policy:
        """The greedy policy for other programs; ValueError when the network cannot be exported, or when
        ``act`` does something else than ``greedy`` and ``squashed`` of the algorithm say."""
        algorithm, spec = self._algorithm, self._algorithm.spec
        acts = ("greedy", "squashed", "averages")
        if (name := changed(type(algorithm), "act", acts)) is not None:
            raise ValueError(
                f"{name} changes act(): give it greedy and squashed, which say what is exported, or"
                " its agent exported()"
            )
        first = algorithm.acts_with[0]
        network = algorithm.networks[first]
        if not hasattr(network, "exported"):
            raise ValueError(f"{type(network).__name__} has no exported()")
        *body, last = network.exported(self.parts[first])
        weight, bias = last.weight[:, algorithm.greedy], last.bias[algorithm.greedy]
        if (each := algorithm.averages) > 1:
            weight = weight.reshape(len(weight), -1, each).mean(-1)
            bias = bias.reshape(-1, each).mean(-1)
        head = [Affine(weight, bias)]
        norm = {name: np.asarray(array) for name, array in self.parts["norm"].items()}
        seen = [Normalise(norm["mean"].ravel(), norm["std"].ravel(), CLIP)] if norm else []
        size, inputs = int(np.prod(spec.action.shape)), int(np.prod(spec.observation.shape))
        squash = [Squash() for _ in range(not spec.discrete and algorithm.squashed)]
        layers: tuple[Layer, ...] = (*seen, *body, *head, *squash, *_masks(spec))
        self._compare(Policy(layers, inputs, spec.action_size), norm)
        if spec.n_actions is not None:
            return Policy((*layers, ArgMax()), inputs, 1)
        if spec.mixed:
            return Policy((*layers, _mixed(spec)), inputs, size)
        if spec.choices:
            return Policy((*layers, ArgMaxEach(np.array(spec.choices))), inputs, size)
        low, high = np.array(spec.action_low), np.array(spec.action_high)
        bounded = np.isfinite(low).all() and np.isfinite(high).all()
        end: list[Layer] = [ToBox(low, high)] if bounded else []
        end += [Round()] if spec.whole_actions else []
        return Policy((*layers, *end), inputs, size)

    def _compare(self, policy: Policy, norm: Arrays) -> None:
        """ValueError unless the policy, before its choice or its box, does what ``act`` does at the
        beginning of episodes."""
        algorithm, seen = self._algorithm, probes(self._algorithm.spec.observation, norm)
        memory = {name: spec.zeros(len(seen)) for name, spec in algorithm.memory.items()}
        actions = np.asarray(
            algorithm.act(np, self._hyper, self.acting, seen, None, memory or None)[0]
        )
        rows = seen.reshape(len(seen), 1, -1)  # to a recurrent policy several are one episode
        outputs = np.concatenate([evaluate(policy, row) for row in rows])
        spec = algorithm.spec
        if spec.mixed:
            numbers, outputs = np.split(outputs, [spec.numbers], 1)
            alike = np.allclose(actions[:, : spec.numbers], numbers, rtol=1e-3, atol=1e-3)
            alike &= _as_good(outputs, actions[:, spec.numbers :].astype(int), spec)
        elif not spec.discrete:
            alike = np.allclose(actions.reshape(outputs.shape), outputs, rtol=1e-3, atol=1e-3)
        else:
            alike = _as_good(outputs, actions, spec)
        if not alike:
            raise ValueError(
                f"act() of {type(algorithm).__name__} does not do what its greedy, its squashed and"
                " the exported() of its network say"
            )


def _as_good(outputs: np.ndarray, actions: np.ndarray, spec: EnvSpec) -> bool:
    """Whether no choice is rated higher; of those that are rated alike, rounding decides."""
    rated = among(np, outputs, None, spec.choices)
    chosen = np.take_along_axis(rated, actions[..., None], -1)[..., 0]
    return np.allclose(chosen, rated.max(-1), rtol=1e-3, atol=1e-4)


def _mixed(spec: EnvSpec) -> Mixed:
    """Numbers in the bounds of the space, those that have none as they are, and indices."""
    low, high = np.array(spec.action_low), np.array(spec.action_high)
    bounded = np.isfinite(low) & np.isfinite(high)
    low, high = (np.clip(end, -LARGEST, LARGEST) for end in (low, high))
    counts = np.array(spec.choices)
    return Mixed(
        shift=np.where(bounded, (low + high) / 2, 0),
        scale=np.where(bounded, (high - low) / 2, 1),
        low=low,
        high=high,
        whole=np.full(len(low), float(spec.whole_actions)),
        counts=counts,
        first=np.zeros(len(counts)),
    )


def _masks(spec: EnvSpec) -> list[Mask]:
    """What leaves the allowed actions: the mask of the newest frame, if there is one."""
    if spec.mask is None:
        return []
    newest = int(np.prod(spec.observation.shape)) - spec.observation.shape[-1]
    return [Mask(newest + spec.mask.place.start, newest + spec.mask.place.stop)]


def changed(kind: type, method: str, says: tuple[str, ...]) -> str | None:
    """The name of the class that overrides a ``method`` which another class had implemented, without
    ``says``, any of which states what it now does; None: there is none."""
    for place, owner in enumerate(kind.__mro__):
        own = vars(owner)
        if any(name in own for name in says):
            return None
        if method in own:
            earlier = [vars(base).get(method) for base in kind.__mro__[place + 1 :]]
            implemented = [e for e in earlier if not getattr(e, "__isabstractmethod__", e is None)]
            return owner.__name__ if implemented else None
    return None


def probes(observation: ArraySpec, norm: Arrays) -> np.ndarray:
    """Observations of several sizes [N, ...], to try policies on."""
    rng = np.random.default_rng(0)
    if observation.dtype == "uint8":
        return rng.integers(0, 256, (8, *observation.shape), np.uint8)
    sizes = np.repeat([0.1, 1.0, 10.0], 16).reshape(-1, *[1] * len(observation.shape))
    drawn = sizes * rng.normal(size=(len(sizes), *observation.shape))
    if norm:
        drawn = norm["mean"] + norm["std"] * drawn
    return drawn.astype(observation.dtype)


def recalled(algorithm: Algorithm[AlgorithmConfig]) -> Mapping[str, object]:
    """What the acting network remembers between steps."""
    return memory_of(algorithm.networks[algorithm.acts_with[0]])


def check_networks(agent: str, algorithm: Algorithm[AlgorithmConfig]) -> None:
    """ConfigError when the networks are not of a kind that the algorithm can learn with."""
    if recalled(algorithm) and not algorithm.recurrent:
        raise ConfigError(f"{agent} cannot learn with a network that has memory: use an MLP")
    dropping = any(getattr(network, "dropout", 0) for network in algorithm.networks.values())
    if dropping and not algorithm.drops_out:
        raise ConfigError(f"{agent} does not learn with dropout: set dropout 0")
    check_batches(agent, algorithm)


def by_part(acts_with: tuple[str, ...], arrays: Mapping[str, Array]) -> Parts:
    """Flat names by the network they belong to; "" has those that belong to none, "norm" and "now"
    the normalisers and the schedules."""
    parts: Parts = {part: {} for part in (*acts_with, "", "norm", "now")}
    for name, array in arrays.items():
        part, _, inner = name.partition("/")
        if part in parts and inner:
            parts[part][inner] = array
        else:
            parts[""][name] = array
    return parts


def acting_with(xp: Namespace, run: partial[tuple[Array, Memory]], parts: Parts) -> Acting:
    """What an algorithm's ``act`` needs: ``run`` has the networks' parameters already."""
    return Acting(run, parts["now"], parts[""], partial(normalize, xp, parts["norm"]))


def acting_in_training(
    xp: Namespace,
    algorithm: Algorithm[AlgorithmConfig],
    hyper: Hyper,
    state: TrainState,
    steps: float | Array,
) -> Acting:
    """What ``act`` needs of a state in the midst of training, after ``steps`` environment steps."""
    now = algorithm.schedules(xp, hyper, steps)
    norm = {f"norm/{name}": state.norm[name] for name in ("mean", "std") if name in state.norm}
    shown = algorithm.acting_params(state.params, state.target)
    arrays = {**shown, **norm, **{f"now/{name}": value for name, value in now.items()}}
    parts = by_part(algorithm.acts_with, arrays)
    run = partial(forward, algorithm.networks, bool(recalled(algorithm)), xp, parts)
    return acting_with(xp, run, parts)


def normalize(xp: Namespace, norm: Mapping[str, Array], observations: Array) -> Array:
    """Observations as the networks see them."""
    if not norm:
        return observations
    return normalised(xp, observations, norm["mean"], norm["std"]).astype(np.float32)


def forward(
    networks: Mapping[str, Network],
    recalls: bool,
    xp: Namespace,
    parts: Mapping[str, Mapping[str, Array]],
    part: str,
    observations: Array,
    memory: Memory | None,
) -> tuple[Array, Memory]:
    """The outputs of an acting network [B, ...], and its memory after them; a pure function."""
    network, params = networks[part], parts[part]
    observations = normalize(xp, parts["norm"], observations)
    if not recalls:
        return network.apply(xp, params, observations), {}
    outputs, after = network.step(xp, params, observations, memory or {})
    return outputs, {name: after[name] for name in memory_of(network)}


def with_generated(
    algorithm: Algorithm[AlgorithmConfig],
    hyper: Hyper,
    block: Block,
    generate: Callable[[Arrays], Arrays],
) -> Block:
    """The block, and recorded in it what the algorithm has actors compute of its rows."""
    if not algorithm.generated:
        return block
    made = generate(on_host(algorithm.generate_from(np, hyper, block)))
    added = {name: a.reshape(*block.rewards.shape, *a.shape[1:]) for name, a in made.items()}
    return dataclasses.replace(block, recorded={**block.recorded, **added})
