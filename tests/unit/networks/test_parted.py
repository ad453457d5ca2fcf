"""Networks for observations of several parts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from exarl.errors import ConfigError
from exarl.networks.cnn import CNN, CNNConfig
from exarl.networks.lstm import LSTM, LSTMConfig
from exarl.networks.mlp import MLP, MLPConfig
from exarl.networks.parted import Parted
from exarl.types import ArraySpec, ObservationPart

MASK = ObservationPart("action_mask", "mask", 0, (3,))
CAMERA = ObservationPart("camera", "image", 3, (12, 12, 1))
NUMBERS = ObservationPart("numbers", "numbers", 147, (2,))
PARTS = (MASK, CAMERA, NUMBERS)
SIZE = 149
SMALL = CNNConfig(filters=(4,), kernels=(4,), strides=(2,), hidden=(8,))
MAKE: dict[str, Any] = {
    "MLP": partial(Parted.of, MLP, PARTS, MLPConfig(hidden=(8,))),
    "CNN": partial(Parted.of, CNN, PARTS, SMALL),
    "LSTM": partial(Parted.of, LSTM, PARTS, LSTMConfig(hidden=(8,), units=4, activation="tanh")),
}


def outputs(network: Any, observations: np.ndarray, extra: Any = None) -> np.ndarray:
    params = network.init(np.random.default_rng(0))
    memory = {name: spec.zeros(len(observations)) for name, spec in network.memory.items()}
    return np.asarray(network.step(np, params, observations, memory, extra)[0])


@pytest.mark.parametrize("frames", [(), (3,)])
@pytest.mark.parametrize("name", MAKE)
def test_images_and_numbers_are_seen_and_masks_are_not(name: str, frames: tuple[int, ...]) -> None:
    network = MAKE[name](ArraySpec((*frames, SIZE), "float32"), 5)
    first = np.random.default_rng(1).random((2, *frames, SIZE), np.float32)
    found = outputs(network, first)
    assert found.shape == (2, 5)
    for part in PARTS:
        other = first.copy()
        other[..., part.place] += 0.5
        assert np.array_equal(outputs(network, other), found) == (part is MASK)


@pytest.mark.parametrize("name", MAKE)
def test_further_inputs_join(name: str) -> None:
    network = MAKE[name](ArraySpec((SIZE,), "float32"), 1, extra=2)
    seen = np.ones((4, SIZE), np.float32)
    one, other = (outputs(network, seen, np.full((4, 2), x, np.float32)) for x in (0, 1))
    assert (one != other).any()


def test_images_of_one_size_are_channels_of_one() -> None:
    images = tuple(ObservationPart(f"c{i}", "image", 144 * i, (12, 12, 1)) for i in range(2))
    network = Parted.of(CNN, images, SMALL, ArraySpec((288,), "uint8"), 2)
    assert network.init(np.random.default_rng(0))["conv0/w"].shape[2] == 2
    other = ObservationPart("wide", "image", 144, (12, 13, 1))
    with pytest.raises(ConfigError, match=r"c0.*wide.*--drop_observations"):
        Parted.of(CNN, (images[0], other), SMALL, ArraySpec((300,), "uint8"), 2)
