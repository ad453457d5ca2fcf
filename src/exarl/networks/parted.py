"""Networks for observations of several parts: what each part of the vector is to the network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from exarl.errors import ConfigError
from exarl.export.policy import Layer, Pick
from exarl.networks.network import Network
from exarl.types import Array, Arrays, ArraySpec, EnvSpec, Namespace, ObservationPart, Params


def network_of(spec: EnvSpec, kind: Any) -> Any:
    """What makes networks of a kind for an environment: ``kind``, unless the observation has parts."""
    return partial(Parted.of, kind, spec.parts) if spec.parts else kind


@dataclass(frozen=True)
class Parted:
    """A network that sees the images and the numbers of an observation, and not its mask.

    A network for images (``joins_images``) gets the numbers as its extra inputs, which join what it
    has made of the images; images of one size are seen as channels of one. Other networks get one
    vector.
    """

    inner: Network
    seen: tuple[ObservationPart, ...]  # joined as the observation of ``inner``
    joining: tuple[ObservationPart, ...]  # its extra inputs
    image: bool  # whether it sees images as images
    shape: tuple[int, ...]  # of observations

    @classmethod
    def of(
        cls,
        kind: Any,
        parts: tuple[ObservationPart, ...],
        config: Any,
        observation: ArraySpec,
        outputs: int,
        extra: int = 0,
    ) -> Parted:
        """The network of class ``kind`` for the vectors ``observation`` of these parts; ConfigError
        where their images do not go together."""
        frames = observation.shape[:-1]
        images = tuple(part for part in parts if part.kind == "image")
        numbers = tuple(part for part in parts if part.kind == "numbers")
        if not (images and getattr(kind, "joins_images", False)):
            seen = tuple(part for part in parts if part.kind != "mask")
            size = sum(math.prod(part.shape) for part in seen)
            spec = ArraySpec((*frames, size), observation.dtype)
            return cls(
                _made(kind, config, spec, outputs, extra), seen, (), False, observation.shape
            )
        sides = {part.shape[:2] for part in images}
        if len(sides) > 1:
            listed = ", ".join(f"{part.name} {part.shape}" for part in images)
            raise ConfigError(
                f"images of different sizes cannot be seen together: {listed}; leave some out with"
                " --drop_observations, or take model_type MLP"
            )
        channels = sum(math.prod(part.shape[2:]) for part in images)
        spec = ArraySpec((*frames, *sides.pop(), channels), observation.dtype)
        beside = math.prod(frames) * sum(math.prod(part.shape) for part in numbers)
        return cls(
            _made(kind, config, spec, outputs, beside + extra),
            images,
            numbers,
            True,
            observation.shape,
        )

    def init(self, rng: np.random.Generator) -> Arrays:
        return self.inner.init(rng)

    def apply(
        self, xp: Namespace, params: Params, observations: Array, extra: Array | None = None
    ) -> Array:
        if self._only is not None and extra is None:
            return self.inner.apply(xp, params, observations[..., self._only])
        seen, more = self._split(xp, observations, extra)
        return self.inner.apply(xp, params, seen, *more)

    @property
    def normalises_batches(self) -> bool:
        """Whether the inner network does."""
        return bool(getattr(self.inner, "normalises_batches", False))

    def learn(
        self,
        xp: Namespace,
        params: Params,
        observations: Array,
        extra: Array | None = None,
        renormalise: bool | Array = False,
    ) -> tuple[Array, dict[str, Array]]:
        """What the inner network, which must have it, makes of what it sees."""
        seen, more = self._split(xp, observations, extra)
        inner: Any = self.inner
        learned: tuple[Array, dict[str, Array]] = inner.learn(
            xp, params, seen, *more, renormalise=renormalise
        )
        return learned

    def exported(self, params: Arrays) -> tuple[Layer, ...]:
        """The layers of what it sees; ValueError where images and numbers go different ways."""
        if self.image or any(part.kind == "image" for part in self.seen):
            raise ValueError("its observations have images beside other parts: use exarl.load")
        size = self.shape[-1]
        seen = np.concatenate([np.arange(size)[place] for place in self._places])
        starts = size * np.arange(math.prod(self.shape[:-1]))[:, None]
        inner: Any = self.inner
        if not hasattr(inner, "exported"):
            raise ValueError(f"{type(inner).__name__} has no exported()")
        return Pick((starts + seen).ravel()), *inner.exported(params)

    @property
    def memory(self) -> Mapping[str, ArraySpec]:
        return dict(getattr(self.inner, "memory", {}))

    @property
    def dropout(self) -> float:
        return float(getattr(self.inner, "dropout", 0.0))

    @property
    def dropped(self) -> Mapping[str, int]:
        return dict(getattr(self.inner, "dropped", {}))

    def step(
        self,
        xp: Namespace,
        params: Params,
        observations: Array,
        memory: Params,
        extra: Array | None = None,
    ) -> tuple[Array, Params]:
        seen, more = self._split(xp, observations, extra)
        return self.inner.step(xp, params, seen, memory, *more)

    def _split(
        self, xp: Namespace, observations: Array, extra: Array | None
    ) -> tuple[Array, tuple[Array, ...]]:
        """What the inner network sees, and its extra inputs."""
        if self.image:
            leading = observations.shape[:-1]
            images = [
                observations[..., part.place].reshape(*leading, *part.shape[:2], -1)
                for part in self.seen
            ]
            seen = images[0] if len(images) == 1 else xp.concatenate(images, -1)
        else:
            seen = _joined(xp, observations, self._places)
        more = [] if extra is None else [extra]
        if self.joining:
            beside = _joined(xp, observations, tuple(part.place for part in self.joining))
            more = [beside.reshape(len(beside), -1), *more]
        if len(more) > 1:
            return seen, (xp.concatenate([array.astype(more[0].dtype) for array in more], -1),)
        return seen, tuple(more)

    @cached_property
    def _only(self) -> slice | None:
        """Where all that is seen stands together; None where it does not, or is more than numbers."""
        return self._places[0] if len(self._places) == 1 and not self.image else None

    @cached_property
    def _places(self) -> tuple[slice, ...]:
        """Where the parts stand that are seen; neighbours as one."""
        places: list[slice] = []
        for part in self.seen:
            adjoins = places and places[-1].stop == part.start
            start = places.pop().start if adjoins else part.start
            places.append(slice(start, part.place.stop))
        return tuple(places)


def _joined(xp: Namespace, observations: Array, places: tuple[slice, ...]) -> Array:
    arrays = [observations[..., place] for place in places]
    return arrays[0] if len(arrays) == 1 else xp.concatenate(arrays, -1)


def _made(kind: Any, config: Any, spec: ArraySpec, outputs: int, extra: int) -> Network:
    network: Network = (
        kind(config, spec, outputs, extra=extra) if extra else kind(config, spec, outputs)
    )
    return network
